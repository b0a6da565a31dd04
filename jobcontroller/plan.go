package jobcontroller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// Delays between attempts after failures that are not the package's: 1 s, doubled up to 5 minutes, the longest that
// kubelets and the Job controller let people wait, too.
const (
	firstRetryDelay = time.Second
	maxRetryDelay   = 5 * time.Minute
)

// observed is all that is decided from: one PackageRevision and its renders at one moment.
type observed struct {
	now time.Time
	// seen is when the controller first saw the contents as they are; zero if it does not know.
	seen     time.Time
	revision *kiln.PackageRevision
	contents summary
	// renders are those that are not being deleted, newest first; results that failed verification are left out.
	renders []Render
	// cancelled are renders that were cancelled before and that no status counts yet, with their names.
	cancelled map[types.UID]string
	// harvestedBefore are renders whose results were applied although their Jobs are not complete yet.
	harvestedBefore map[types.UID]bool
	// class is nil while the RenderClass that the revision names does not exist.
	class *kiln.RenderClassSpec
}

// plan is what to do about it. At most one of start, supply, harvest, giveUp and setRight is set.
type plan struct {
	// cancel are renders that a change of the contents made pointless.
	cancel []Render
	// prune are ended renders that the history limits leave no room for. They go before the next one is started.
	prune []Render
	// start is the attempt to begin; 0 for none.
	start int32
	// supply is a render that waits for its snapshot.
	supply *Render
	// harvest is a result to verify and to apply.
	harvest *harvest
	// giveUp is a render that ended in a way that trying again will not change.
	giveUp *Render
	// setRight is an outcome that the root Kptfile does not tell any more, since somebody wrote over it.
	setRight *kiln.RenderOutcome

	// status is what to write once the rest is done; harvest and giveUp settle it further.
	status kiln.PackageRevisionStatus
	// story is what the status tells, while no outcome does.
	story *story
	// requeueAfter is when to look again, if nothing happens before; 0 for never.
	requeueAfter time.Duration
	events       []notice
}

// harvest is a result and the render that published it.
type harvest struct {
	render Render
	result StoredResult
	// replay: the result was applied before; the contents have returned to its input.
	replay bool
}

// decide turns what was observed into a plan. It is pure: the tables of plan_test.go are its specification.
func decide(o observed) plan {
	p := plan{status: *o.revision.Status.DeepCopy()}
	wanted := o.target()
	p.status.PackageConditions = o.contents.conditions

	if !o.revision.DeletionTimestamp.IsZero() {
		p.cancel = o.atWorkBut(func(Render) bool { return false })
		closeRender(&p.status, o.now)
		p.tell(neverRendered(kiln.ReasonDeleting, "The PackageRevision is being deleted."))
		return p
	}
	// A result that led to the present contents was applied, and whoever did it died, or met an edit of something else, before
	// it said so: the render goes on to its end.
	if h := o.appliedResult(wanted); h != nil {
		p.cancel = o.atWorkBut(func(r Render) bool { return r.UID == h.render.UID })
		supersede(&p, o, wanted, h.render.UID)
		p.harvest = h
		return p
	}
	draft := o.revision.Spec.Lifecycle == kiln.LifecycleDraft
	p.cancel = o.atWorkBut(func(r Render) bool { return draft && wanted.isOf(r) })
	supersede(&p, o, wanted, "")

	if last := p.status.LastOutcome; wanted.settledBy(last) {
		resumeOutcome(&p.status, last)
		p.tell(outcomeStory(last))
		if draft && o.contents.readable && !kptfileTells(o.contents.conditions, last) {
			p.setRight = last
		}
		return p
	}
	if !draft {
		closeRender(&p.status, o.now)
		p.tell(notDraftStory(o.revision.Spec.Lifecycle))
		return p
	}
	if h := o.storedOutcome(wanted); h != nil {
		p.harvest = h
		return p
	}

	current := o.current(wanted)
	if current == nil {
		return o.begin(p, wanted, o.nextAttempt(wanted, nil))
	}
	if len(current.Results) > 0 {
		p.harvest = &harvest{render: *current, result: current.Results[0]}
		return p
	}
	switch current.State {
	case RenderActive:
		if !current.Supplied {
			p.supply = current
		}
		running(&p, o, wanted, *current)
		return p
	case RenderDeadline:
		p.giveUp = current
		return p
	default:
		return o.begin(p, wanted, o.nextAttempt(wanted, current))
	}
}

// target is what a render has to be of to be of use: these contents and this request.
type target struct {
	digest  string
	request string
}

// target is what is wanted now. A request that came while the draft is suspended waits with everything else, and nothing but
// a draft answers one.
func (o observed) target() target {
	t := target{digest: o.contents.digest}
	if !ptr.Deref(o.revision.Spec.Suspend, false) && o.revision.Spec.Lifecycle == kiln.LifecycleDraft {
		t.request = requestOf(o.revision)
	}
	return t
}

// is says whether something of this digest that answers this request is what is wanted. Without a request any answer will do.
func (t target) is(digest, request string) bool { return digest == t.digest && t.answeredBy(request) }

func (t target) answeredBy(request string) bool { return t.request == "" || t.request == request }

func (t target) isOf(r Render) bool { return t.is(r.InputDigest, r.Request) }

// settledBy says whether the outcome speaks of these contents: they came out of a success, or a failure was about them.
func (t target) settledBy(last *kiln.RenderOutcome) bool {
	if last == nil || !t.answeredBy(last.Request) {
		return false
	}
	return last.OutputDigest == t.digest || !last.Succeeded && last.InputDigest == t.digest
}

// appliedResult finds a result that led to the present contents, unless the last outcome tells of it.
func (o observed) appliedResult(wanted target) *harvest {
	if wanted.settledBy(o.revision.Status.LastOutcome) {
		return nil
	}
	for _, r := range o.renders {
		if r.InputDigest == wanted.digest || !wanted.answeredBy(r.Request) {
			continue
		}
		for _, result := range r.Results {
			if result.OutputDigest == wanted.digest {
				return &harvest{render: r, result: result}
			}
		}
	}
	return nil
}

// storedOutcome finds the result of the last outcome, when the contents have returned to its input.
func (o observed) storedOutcome(wanted target) *harvest {
	last := o.revision.Status.LastOutcome
	if last == nil || !last.Succeeded || !wanted.is(last.InputDigest, last.Request) {
		return nil
	}
	for _, r := range o.renders {
		if string(r.UID) == last.JobUID && len(r.Results) > 0 {
			return &harvest{render: r, result: r.Results[0], replay: true}
		}
	}
	return nil
}

// current is the newest attempt at what is wanted. One that was harvested has said what it had to say.
func (o observed) current(wanted target) *Render {
	var newest *Render
	for i, r := range o.renders {
		if !wanted.isOf(r) || o.harvested(r) {
			continue
		}
		if newest == nil || r.Attempt > newest.Attempt {
			newest = &o.renders[i]
		}
	}
	return newest
}

func (o observed) key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.revision.Namespace, Name: o.revision.Name}
}

// scheduledAt is when the contents were found to need a render.
func (o observed) scheduledAt() time.Time {
	if o.seen.IsZero() {
		return o.now
	}
	return o.seen
}

// atWork says whether there is anything to cancel. A render whose result was harvested is over, though its Job takes a second
// or two to notice: it is left to the history limits.
func (o observed) atWork(r Render) bool {
	return r.State == RenderActive && !o.harvested(r) && !o.harvestedBefore[r.UID]
}

func (o observed) harvested(r Render) bool {
	last := o.revision.Status.LastOutcome
	return last != nil && last.JobUID == string(r.UID)
}

// atWorkBut are the renders at work that keep does not spare.
func (o observed) atWorkBut(keep func(Render) bool) []Render {
	var found []Render
	for _, r := range o.renders {
		if o.atWork(r) && !keep(r) {
			found = append(found, r)
		}
	}
	return found
}

// next is the coming attempt, and when it may begin.
type next struct {
	attempt int32
	at      time.Time
	// failure is why there has to be another one.
	failure string
}

// nextAttempt follows the ended render of the same contents, or the one the status knows of, which is gone.
func (o observed) nextAttempt(wanted target, ended *Render) next {
	if ended != nil {
		why := cmp.Or(ended.Why, "it published no valid result")
		return next{ended.Attempt + 1, ended.Ended.Add(retryDelay(ended.Attempt)), fmt.Sprintf("Render %s failed: %s.", ended.Name, why)}
	}
	at := o.revision.Status.Render
	if at == nil || at.Attempt == 0 || !wanted.is(at.InputDigest, at.Request) {
		return next{attempt: 1}
	}
	if at.Phase == kiln.PhaseSucceeded {
		return next{attempt: at.Attempt + 1}
	}
	n := next{attempt: at.Attempt + 1, failure: fmt.Sprintf("Render %s was deleted.", at.JobName)}
	// The first one to vanish is replaced at once: somebody deleted its Job to make it start over.
	if at.Attempt > 1 && at.StartTime != nil {
		n.at = at.StartTime.Add(retryDelay(at.Attempt))
	}
	return n
}

func retryDelay(attempt int32) time.Duration {
	if attempt > 9 {
		return maxRetryDelay
	}
	return min(firstRetryDelay<<max(attempt-1, 0), maxRetryDelay)
}

// begin starts a render, or says what it waits for.
func (o observed) begin(p plan, wanted target, n next) plan {
	scheduled(&p.status, o, wanted)
	if ptr.Deref(o.revision.Spec.Suspend, false) {
		p.tell(inProgress(kiln.ReasonSuspended, "The contents are to be rendered, but spec.suspend is true."))
		return p
	}
	if o.class == nil {
		p.tell(inProgress(kiln.ReasonRenderClassNotFound, fmt.Sprintf("RenderClass %q does not exist: create it or name another one in spec.renderClassName.", ptr.Deref(o.revision.Spec.RenderClassName, ""))))
		return p
	}
	if wait := n.at.Sub(o.now); wait > 0 {
		at := metav1.NewMicroTime(n.at)
		p.status.Render.NextAttemptTime = &at
		p.tell(inProgress(kiln.ReasonRetrying, fmt.Sprintf("%s Attempt %d is due at %s.", n.failure, n.attempt, n.at.UTC().Format(time.RFC3339))))
		p.requeueAfter = wait
		return p
	}
	p.start = n.attempt
	p.prune = o.beyondHistory()
	return p
}

// beyondHistory are the ended renders beyond the limits of the class. The one that the last outcome came from stays, since
// contents that return to its input get its result again.
func (o observed) beyondHistory() []Render {
	ended := slices.DeleteFunc(slices.Clone(o.renders), func(r Render) bool { return r.State == RenderActive })
	slices.SortStableFunc(ended, func(a, b Render) int { return b.Ended.Compare(a.Ended) })
	keep := map[bool]int32{
		true:  ptr.Deref(o.class.SuccessfulJobsHistoryLimit, defaultSuccessfulHistory),
		false: ptr.Deref(o.class.FailedJobsHistoryLimit, defaultFailedHistory),
	}
	var beyond []Render
	for _, r := range ended {
		if keep[r.Succeeded]--; keep[r.Succeeded] < 0 && !o.harvested(r) {
			beyond = append(beyond, r)
		}
	}
	return beyond
}

// String says in a few words what is to be done, for the log.
func (p plan) String() string {
	var parts []string
	for _, r := range p.cancel {
		parts = append(parts, "cancel "+r.Name)
	}
	switch {
	case p.start > 0:
		parts = append(parts, fmt.Sprintf("start attempt %d", p.start))
	case p.supply != nil:
		parts = append(parts, "supply "+p.supply.Name)
	case p.harvest != nil:
		parts = append(parts, "harvest "+p.harvest.render.Name)
	case p.giveUp != nil:
		parts = append(parts, "give up "+p.giveUp.Name)
	case p.setRight != nil:
		parts = append(parts, "set the Kptfile right")
	case p.story != nil:
		parts = append(parts, "tell "+p.story.reason)
	}
	return strings.Join(parts, ", ")
}

func (p *plan) tell(s story) { p.story = &s }

func requestOf(rev *kiln.PackageRevision) string {
	return truncate(rev.Annotations[kiln.AnnotationRenderRequestedAt], maxRequest)
}

// maxRequest is the API's bound on status.render.request.
const maxRequest = 256

// outcomeStory tells a finished render's outcome.
func outcomeStory(last *kiln.RenderOutcome) story {
	if last.Succeeded {
		return succeeded(cmp.Or(last.Message, fmt.Sprintf("The contents are the output of render %s.", last.JobName)))
	}
	return failed(last.Reason, last.Message)
}
