package jobcontroller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// The functions of this file move status.render from one phase to the next.

// supersede counts the renders that newer contents made pointless: those that are to be cancelled, those that were and are
// not counted yet, and the one that the status takes for running although other contents are wanted, whoever removed it; but
// not the one whose result is about to be harvested.
func supersede(p *plan, o observed, wanted target, harvested types.UID) {
	names := maps.Clone(o.cancelled)
	if names == nil {
		names = map[types.UID]string{}
	}
	for _, r := range p.cancel {
		names[r.UID] = r.Name
	}
	at := p.status.Render
	stale := at != nil && !isOver(at.Phase) && at.JobUID != string(harvested) && !wanted.is(at.InputDigest, at.Request)
	if stale && at.Phase == kiln.PhaseRunning {
		names[types.UID(at.JobUID)] = at.JobName
	}
	for _, name := range slices.Sorted(maps.Values(names)) {
		p.events = append(p.events, cancelledEvent(name, o.revision.Spec.Lifecycle))
	}
	switch {
	case stale:
		scheduled(&p.status, o, wanted)
	case at == nil && len(names) > 0:
		scheduled(&p.status, o, wanted)
	}
	if len(names) > 0 {
		p.status.Render.Superseded += int64(len(names))
	}
}

// scheduled makes the status speak of the render that is wanted. What is known of it already is kept.
func scheduled(status *kiln.PackageRevisionStatus, o observed, wanted target) {
	at := status.Render
	if at != nil && !isOver(at.Phase) && wanted.is(at.InputDigest, at.Request) {
		at.Phase = kiln.PhaseScheduled
		at.NextAttemptTime = nil
		return
	}
	next := &kiln.RenderStatus{
		Phase:         kiln.PhaseScheduled,
		InputDigest:   wanted.digest,
		Request:       wanted.request,
		ScheduledTime: microTime(o.scheduledAt()),
	}
	if at != nil {
		next.Superseded, next.Replayed = at.Superseded, at.Replayed
	}
	status.Render = next
}

// running makes the status speak of a render that exists.
func running(p *plan, o observed, wanted target, render Render) {
	if at := p.status.Render; at == nil || isOver(at.Phase) {
		scheduled(&p.status, o, wanted)
	}
	startedAs(&p.status, render)
	p.tell(runningStory(render))
}

func startedAs(status *kiln.PackageRevisionStatus, render Render) {
	at := status.Render
	at.Phase = kiln.PhaseRunning
	at.NextAttemptTime = nil
	if at.JobUID == string(render.UID) {
		return
	}
	at.JobName, at.JobUID, at.Attempt = render.Name, string(render.UID), render.Attempt
	at.StartTime = microTime(render.Created)
}

func runningStory(render Render) story {
	return inProgress(kiln.ReasonRunning, fmt.Sprintf("Render %s is running.", render.Name))
}

// settled writes down what a render came to.
func settled(status *kiln.PackageRevisionStatus, render Render, outcome kiln.RenderOutcome, steps []kiln.RenderStep, replay bool, now time.Time) {
	at := status.Render
	if at == nil || at.JobUID != string(render.UID) {
		next := &kiln.RenderStatus{ScheduledTime: microTime(now)}
		if at != nil {
			next.Superseded, next.Replayed = at.Superseded, at.Replayed
			if !isOver(at.Phase) {
				next.ScheduledTime = at.ScheduledTime
			}
		}
		status.Render, at = next, next
		startedAs(status, render)
	}
	at.Phase = kiln.PhaseSucceeded
	if !outcome.Succeeded {
		at.Phase = kiln.PhaseFailed
	}
	at.InputDigest, at.OutputDigest, at.Request = outcome.InputDigest, outcome.OutputDigest, outcome.Request
	at.Attempt = render.Attempt
	at.FinishTime = microTime(now)
	at.NextAttemptTime = nil
	at.Steps = steps
	if replay {
		at.Replayed++
	}
	status.LastOutcome = &outcome
}

// resumeOutcome makes the status speak of the last outcome again, after the contents returned to it before another
// render of them had finished.
func resumeOutcome(status *kiln.PackageRevisionStatus, last *kiln.RenderOutcome) {
	at := status.Render
	if at != nil && isOver(at.Phase) && at.JobUID == last.JobUID {
		return
	}
	resumed := &kiln.RenderStatus{
		Phase:        kiln.PhaseSucceeded,
		InputDigest:  last.InputDigest,
		OutputDigest: last.OutputDigest,
		Request:      last.Request,
		JobName:      last.JobName,
		JobUID:       last.JobUID,
	}
	if !last.Succeeded {
		resumed.Phase = kiln.PhaseFailed
	}
	if at != nil {
		resumed.Superseded, resumed.Replayed = at.Superseded, at.Replayed
	}
	status.Render = resumed
}

// closeRender ends a render that nothing will come of.
func closeRender(status *kiln.PackageRevisionStatus, now time.Time) {
	if at := status.Render; at != nil && !isOver(at.Phase) {
		at.Phase = kiln.PhaseFailed
		at.FinishTime = microTime(now)
		at.NextAttemptTime = nil
	}
}

func isOver(phase kiln.RenderPhase) bool {
	return phase == kiln.PhaseSucceeded || phase == kiln.PhaseFailed
}

func microTime(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
	return &m
}
