package jobcontroller

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// situation builds what decide looks at.
type situation struct{ o observed }

func contents(digest string) *situation {
	rev := &kiln.PackageRevision{}
	rev.Namespace, rev.Name, rev.UID, rev.Generation = "team", "web", "rev-uid", 7
	rev.Spec.Lifecycle = kiln.LifecycleDraft
	return &situation{observed{now: noon, revision: rev, contents: summary{digest: digest}, class: &kiln.RenderClassSpec{}}}
}

func (s *situation) lifecycle(l kiln.Lifecycle) *situation {
	s.o.revision.Spec.Lifecycle = l
	return s
}

// kptfileTelling makes the root Kptfile tell outcomes, or nothing.
func (s *situation) kptfileTelling(outcomes ...kiln.RenderOutcome) *situation {
	s.o.contents.readable = true
	for _, outcome := range outcomes {
		for _, c := range kptfileConclusion(&outcome) {
			s.o.contents.conditions = append(s.o.contents.conditions, kiln.PackageCondition{Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message})
		}
	}
	return s
}

func (s *situation) suspended() *situation {
	s.o.revision.Spec.Suspend = ptr.To(true)
	return s
}

func (s *situation) withoutClass() *situation {
	s.o.class = nil
	s.o.revision.Spec.RenderClassName = ptr.To("gold")
	return s
}

func (s *situation) cancelledBefore(uid types.UID) *situation {
	s.o.cancelled = map[types.UID]string{uid: "job-" + string(uid)}
	return s
}

func (s *situation) harvestedBefore(uid types.UID) *situation {
	s.o.harvestedBefore = map[types.UID]bool{uid: true}
	return s
}

// closedRender is the status after a render that nothing came of.
func (s *situation) closedRender(job types.UID) *situation {
	s.o.revision.Status.Render = &kiln.RenderStatus{Phase: kiln.PhaseFailed, InputDigest: "new", JobUID: string(job), Attempt: 1}
	return s
}

func (s *situation) deleting() *situation {
	at := metav1.NewTime(noon)
	s.o.revision.DeletionTimestamp = &at
	return s
}

func (s *situation) keepingOneOfEach() *situation {
	s.o.class = &kiln.RenderClassSpec{SuccessfulJobsHistoryLimit: ptr.To[int32](1), FailedJobsHistoryLimit: ptr.To[int32](1)}
	return s
}

func (s *situation) request(value string) *situation {
	s.o.revision.Annotations = map[string]string{kiln.AnnotationRenderRequestedAt: value}
	return s
}

// statusRunning is the status while a render runs.
func (s *situation) statusRunning(input string, job types.UID, attempt int32) *situation {
	s.o.revision.Status.Render = &kiln.RenderStatus{
		Phase: kiln.PhaseRunning, InputDigest: input, JobName: "job-" + string(job), JobUID: string(job), Attempt: attempt,
		StartTime: microTime(noon.Add(-time.Second)), ScheduledTime: microTime(noon.Add(-2 * time.Second)),
	}
	return s
}

// statusSettled is the status after a render came to an outcome.
func (s *situation) statusSettled(outcome kiln.RenderOutcome) *situation {
	outcome.JobName = "job-" + outcome.JobUID
	s.o.revision.Status.LastOutcome = &outcome
	phase := kiln.PhaseSucceeded
	if !outcome.Succeeded {
		phase = kiln.PhaseFailed
	}
	s.o.revision.Status.Render = &kiln.RenderStatus{
		Phase: phase, InputDigest: outcome.InputDigest, OutputDigest: outcome.OutputDigest,
		JobName: outcome.JobName, JobUID: outcome.JobUID, Attempt: 1,
	}
	return s
}

func (s *situation) render(r Render) *situation {
	r.Name = "job-" + string(r.UID)
	s.o.renders = append(s.o.renders, r)
	return s
}

func active(uid types.UID, input string, results ...StoredResult) Render {
	return Render{UID: uid, InputDigest: input, Attempt: 1, State: RenderActive, Supplied: true, Created: noon.Add(-time.Second), Results: results}
}

func ended(uid types.UID, input string, results ...StoredResult) Render {
	return Render{UID: uid, InputDigest: input, Attempt: 1, State: RenderEnded, Supplied: true, Created: noon.Add(-time.Minute), Ended: noon.Add(-time.Millisecond), Results: results}
}

func with(r Render, change func(*Render)) Render {
	change(&r)
	return r
}

var rendered = kiln.RenderOutcome{Succeeded: true, Reason: kiln.ReasonRenderSuccess, InputDigest: "in", OutputDigest: "out", JobUID: "done"}
var broken = kiln.RenderOutcome{Reason: "FunctionFailed", Message: "no", InputDigest: "in", OutputDigest: "in", JobUID: "done"}

// decision is what the tables compare of a plan.
type decision struct {
	Cancel     []types.UID
	Prune      []types.UID
	Start      int32
	Supply     types.UID
	Harvest    types.UID
	Replay     bool
	GiveUp     types.UID
	SetRight   bool
	Reason     string
	Finished   bool
	Phase      kiln.RenderPhase
	Superseded int64
	Requeue    time.Duration
}

func decisionOf(p plan) decision {
	d := decision{Start: p.start, Requeue: p.requeueAfter, SetRight: p.setRight != nil}
	for _, r := range p.cancel {
		d.Cancel = append(d.Cancel, r.UID)
	}
	for _, r := range p.prune {
		d.Prune = append(d.Prune, r.UID)
	}
	if p.supply != nil {
		d.Supply = p.supply.UID
	}
	if p.harvest != nil {
		d.Harvest, d.Replay = p.harvest.render.UID, p.harvest.replay
	}
	if p.giveUp != nil {
		d.GiveUp = p.giveUp.UID
	}
	if p.story != nil {
		d.Reason, d.Finished = p.story.reason, p.story.finished
	}
	if p.status.Render != nil {
		d.Phase, d.Superseded = p.status.Render.Phase, p.status.Render.Superseded
	}
	return d
}

func TestDecide(t *testing.T) {
	result := StoredResult{Name: "result", UID: "result"}
	leadingTo := func(digest string) StoredResult {
		return StoredResult{Name: "result", UID: "result", OutputDigest: digest}
	}

	for name, test := range map[string]struct {
		given *situation
		want  decision
	}{
		// Schedule.
		"if contents were never rendered then start the first attempt": {
			contents("in"),
			decision{Start: 1, Phase: kiln.PhaseScheduled},
		},
		"if contents differ from the last outcome then start": {
			contents("new").statusSettled(rendered),
			decision{Start: 1, Phase: kiln.PhaseScheduled},
		},
		"if contents are the output of the last render then there is nothing to do": {
			contents("out").statusSettled(rendered),
			decision{Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},
		"if contents are those that the last render failed on then there is nothing to do": {
			contents("in").statusSettled(broken),
			decision{Reason: "FunctionFailed", Finished: true, Phase: kiln.PhaseFailed},
		},
		"if a render is asked for by annotation then start although the contents are rendered": {
			contents("out").statusSettled(rendered).request("now"),
			decision{Start: 1, Phase: kiln.PhaseScheduled},
		},
		"if contents return to the input of the last outcome then its stored result is applied again": {
			contents("in").statusSettled(rendered).render(ended("done", "in", result)),
			decision{Harvest: "done", Replay: true, Phase: kiln.PhaseSucceeded},
		},
		"if contents return to the input of the last outcome and its Job is gone then start": {
			contents("in").statusSettled(rendered),
			decision{Start: 2, Phase: kiln.PhaseScheduled},
		},
		"if the draft is suspended then it waits and says so": {
			contents("in").suspended(),
			decision{Reason: kiln.ReasonSuspended, Phase: kiln.PhaseScheduled},
		},
		"if the RenderClass does not exist then it waits and says so": {
			contents("in").withoutClass(),
			decision{Reason: kiln.ReasonRenderClassNotFound, Phase: kiln.PhaseScheduled},
		},
		"if a request is made of rendered contents past Draft then they stay rendered": {
			contents("out").statusSettled(rendered).lifecycle(kiln.LifecycleProposed).request("now"),
			decision{Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},
		"if the Kptfile of rendered contents says so then it is left alone": {
			contents("out").statusSettled(rendered).kptfileTelling(rendered),
			decision{Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},
		"if somebody took out of the Kptfile that its contents are rendered then it is set right": {
			contents("out").statusSettled(rendered).kptfileTelling(),
			decision{SetRight: true, Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},
		"if the Kptfile of contents that failed to render claims a success then it is set right": {
			contents("in").statusSettled(broken).kptfileTelling(rendered),
			decision{SetRight: true, Reason: "FunctionFailed", Finished: true, Phase: kiln.PhaseFailed},
		},
		"if the Kptfile of contents past Draft is wrong then it is left alone": {
			contents("out").statusSettled(rendered).kptfileTelling().lifecycle(kiln.LifecyclePublished),
			decision{Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},
		"if contents past Draft were never rendered then nothing renders them": {
			contents("in").lifecycle(kiln.LifecyclePublished),
			decision{Reason: kiln.ReasonNotDraft, Finished: true},
		},
		"if rendered contents are past Draft then they stay rendered": {
			contents("out").statusSettled(rendered).lifecycle(kiln.LifecycleProposed),
			decision{Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},

		"if the annotation that asked for a render is removed then nothing is rendered": {
			contents("out").statusSettled(kiln.RenderOutcome{Succeeded: true, Reason: kiln.ReasonRenderSuccess, InputDigest: "in", OutputDigest: "out", JobUID: "done", Request: "before"}),
			decision{Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},
		"if a render is asked for while the draft is suspended then a running one goes on": {
			contents("in").suspended().request("now").statusRunning("in", "a", 1).render(active("a", "in")),
			decision{Reason: kiln.ReasonRunning, Phase: kiln.PhaseRunning},
		},
		"if the revision is being deleted then its render is cancelled": {
			contents("in").statusRunning("in", "a", 1).render(active("a", "in")).deleting(),
			decision{Cancel: []types.UID{"a"}, Reason: kiln.ReasonDeleting, Finished: true, Phase: kiln.PhaseFailed},
		},

		// Run.
		"if the render is running then leave it alone": {
			contents("in").statusRunning("in", "a", 1).render(active("a", "in")),
			decision{Reason: kiln.ReasonRunning, Phase: kiln.PhaseRunning},
		},
		"if a predecessor died after creating the Job then adopt it": {
			contents("in").render(active("a", "in")),
			decision{Reason: kiln.ReasonRunning, Phase: kiln.PhaseRunning},
		},
		"if a predecessor died before writing the snapshot then supply it": {
			contents("in").render(with(active("a", "in"), func(r *Render) { r.Supplied = false })),
			decision{Supply: "a", Reason: kiln.ReasonRunning, Phase: kiln.PhaseRunning},
		},
		"if a suspended draft's render is running then it goes on": {
			contents("in").suspended().statusRunning("in", "a", 1).render(active("a", "in")),
			decision{Reason: kiln.ReasonRunning, Phase: kiln.PhaseRunning},
		},

		// Cancel.
		"if an edit arrives while a render runs then cancel it and start anew": {
			contents("new").statusRunning("in", "a", 1).render(active("a", "in")),
			decision{Cancel: []types.UID{"a"}, Start: 1, Phase: kiln.PhaseScheduled, Superseded: 1},
		},
		"if the superseded Job is gone already then it counts all the same": {
			contents("new").statusRunning("in", "a", 1),
			decision{Start: 1, Phase: kiln.PhaseScheduled, Superseded: 1},
		},
		"if an edit kept the status from counting a cancelled render then it is counted now": {
			contents("new").cancelledBefore("a"),
			decision{Start: 1, Phase: kiln.PhaseScheduled, Superseded: 1},
		},
		"if the status takes the cancelled render for running then it is counted once": {
			contents("new").statusRunning("in", "a", 1).cancelledBefore("a"),
			decision{Start: 1, Phase: kiln.PhaseScheduled, Superseded: 1},
		},
		"if a Job that lost its snapshot renders old contents then cancel it": {
			contents("new").render(with(active("a", "in"), func(r *Render) { r.Supplied = false })),
			decision{Cancel: []types.UID{"a"}, Start: 1, Phase: kiln.PhaseScheduled, Superseded: 1},
		},
		"if a render is asked for anew while one runs then that one is superseded": {
			contents("in").statusRunning("in", "a", 1).render(active("a", "in")).request("now"),
			decision{Cancel: []types.UID{"a"}, Start: 1, Phase: kiln.PhaseScheduled, Superseded: 1},
		},
		"if contents return to the last output while a render runs then cancel it and be done": {
			contents("out").statusSettled(rendered).statusRunning("new", "a", 1).render(active("a", "new")),
			decision{Cancel: []types.UID{"a"}, Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded, Superseded: 1},
		},
		"if a Job that was harvested early is not complete yet then an edit leaves it alone": {
			contents("new").statusSettled(rendered).render(active("done", "in", result)),
			decision{Start: 1, Phase: kiln.PhaseScheduled},
		},
		"if Jobs harvested one after the other are not complete yet then an edit leaves both alone": {
			contents("new").statusSettled(rendered).render(active("done", "in", result)).render(active("before", "earlier", result)).harvestedBefore("before"),
			decision{Start: 1, Phase: kiln.PhaseScheduled},
		},
		"if the lifecycle leaves Draft while a render runs then cancel it": {
			contents("in").lifecycle(kiln.LifecycleProposed).statusRunning("in", "a", 1).render(active("a", "in")),
			decision{Cancel: []types.UID{"a"}, Reason: kiln.ReasonNotDraft, Finished: true, Phase: kiln.PhaseFailed, Superseded: 1},
		},

		// Harvest.
		"if a running render has published then harvest before the Job is complete": {
			contents("in").statusRunning("in", "a", 1).render(active("a", "in", result)),
			decision{Harvest: "a", Phase: kiln.PhaseRunning},
		},
		"if a failed Job has published then harvest its failure": {
			contents("in").statusRunning("in", "a", 1).render(ended("a", "in", result)),
			decision{Harvest: "a", Phase: kiln.PhaseRunning},
		},
		"if a predecessor died between applying and saying so then harvest again": {
			contents("out").statusRunning("in", "a", 1).render(active("a", "in", leadingTo("out"))),
			decision{Harvest: "a", Phase: kiln.PhaseRunning},
		},
		"if the contents are the output of a render that no status ever took for running then harvest it": {
			contents("out").render(active("a", "in", leadingTo("out"))),
			decision{Harvest: "a"},
		},
		"if contents return to the output of an earlier render then its result tells so without a Job": {
			contents("out").statusSettled(kiln.RenderOutcome{Succeeded: true, InputDigest: "x", OutputDigest: "y", JobUID: "done"}).render(ended("earlier", "in", leadingTo("out"))),
			decision{Harvest: "earlier", Phase: kiln.PhaseSucceeded},
		},
		"if the old files are put back after the lifecycle left Draft then the status speaks of their render": {
			contents("out").statusSettled(rendered).lifecycle(kiln.LifecycleProposed).closedRender("b"),
			decision{Reason: kiln.ReasonRenderSuccess, Finished: true, Phase: kiln.PhaseSucceeded},
		},
		"if a result leads elsewhere than to the contents then its render is superseded": {
			contents("new").statusRunning("in", "a", 1).render(active("a", "in", leadingTo("out"))),
			decision{Cancel: []types.UID{"a"}, Start: 1, Phase: kiln.PhaseScheduled, Superseded: 1},
		},
		"if the deadline passed without a result then give up": {
			contents("in").statusRunning("in", "a", 1).render(with(ended("a", "in"), func(r *Render) { r.State = RenderDeadline })),
			decision{GiveUp: "a", Phase: kiln.PhaseRunning},
		},

		// Retry.
		"if a Job ended without a result then wait before the next attempt": {
			contents("in").statusRunning("in", "a", 1).render(ended("a", "in")),
			decision{Reason: kiln.ReasonRetrying, Phase: kiln.PhaseScheduled, Requeue: time.Second - time.Millisecond},
		},
		"if the wait is over then start the next attempt": {
			contents("in").statusRunning("in", "a", 1).render(with(ended("a", "in"), func(r *Render) { r.Ended = noon.Add(-time.Second) })),
			decision{Start: 2, Phase: kiln.PhaseScheduled},
		},
		"if the third attempt ended without a result then wait four times as long as after the first": {
			contents("in").statusRunning("in", "a", 3).render(with(ended("a", "in"), func(r *Render) { r.Attempt = 3; r.Ended = noon })),
			decision{Reason: kiln.ReasonRetrying, Phase: kiln.PhaseScheduled, Requeue: 4 * time.Second},
		},
		"if somebody deleted the Job then start it over at once": {
			contents("in").statusRunning("in", "a", 1),
			decision{Start: 2, Phase: kiln.PhaseScheduled},
		},
		"if somebody deletes Job after Job then start over with growing delays": {
			contents("in").statusRunning("in", "a", 4),
			decision{Reason: kiln.ReasonRetrying, Phase: kiln.PhaseScheduled, Requeue: 7 * time.Second},
		},

		// Clean up.
		"if ended renders exceed the history limits then prune them before the next start": {
			contents("new").statusSettled(rendered).keepingOneOfEach().
				render(with(ended("done", "in", result), func(r *Render) { r.Succeeded = true })).
				render(with(ended("older", "x"), func(r *Render) { r.Succeeded = true; r.Ended = noon.Add(-time.Minute) })).
				render(with(ended("failed", "y"), func(r *Render) { r.Ended = noon.Add(-time.Minute) })).
				render(with(ended("failed-earlier", "z"), func(r *Render) { r.Ended = noon.Add(-time.Hour) })),
			decision{Start: 1, Prune: []types.UID{"older", "failed-earlier"}, Phase: kiln.PhaseScheduled},
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(decisionOf(decide(test.given.o))).To(Equal(test.want))
		})
	}
}

func TestDecideNeverChangesWhatItObserved(t *testing.T) {
	g := NewWithT(t)
	s := contents("new").statusSettled(rendered).statusRunning("in", "a", 1).render(active("a", "in"))
	before := s.o.revision.DeepCopy()
	decide(s.o)
	g.Expect(s.o.revision).To(Equal(before))
}

func TestSupersedingKeepsTheTimeOfTheNewEdit(t *testing.T) {
	g := NewWithT(t)
	s := contents("new").statusRunning("in", "a", 1).render(active("a", "in"))
	s.o.seen = noon.Add(-5 * time.Millisecond)
	p := decide(s.o)
	g.Expect(p.status.Render.ScheduledTime.Time).To(BeTemporally("==", s.o.seen))
	g.Expect(p.events).To(HaveLen(1))
	g.Expect(p.events[0].reason).To(Equal("RenderSuperseded"))
}

func TestRenderNamesTellApartWhatMustNotBeConfused(t *testing.T) {
	g := NewWithT(t)
	rev := contents("x").o.revision
	name := renderName(rev, "", 1)
	g.Expect(name).To(MatchRegexp(`^web-[0-9a-f]{10}-1$`))

	other := rev.DeepCopy()
	other.UID = "another"
	g.Expect(renderName(other, "", 1)).NotTo(Equal(name), "a namesake made later")
	other = rev.DeepCopy()
	other.Generation++
	g.Expect(renderName(other, "", 1)).NotTo(Equal(name), "a later edit")
	g.Expect(renderName(rev, "again", 1)).NotTo(Equal(name), "a request")
	g.Expect(renderName(rev, "", 2)).NotTo(Equal(name), "another attempt")

	other = rev.DeepCopy()
	other.Name = "a.very-long.name-of-a-revision.that-uses-all-of-the-characters-that.a-name-may-have"
	long := renderName(other, "", 123456)
	g.Expect(len(long)).To(BeNumerically("<=", 58))
	g.Expect(long).To(MatchRegexp(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`))
}
