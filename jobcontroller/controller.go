package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/kptfile"
)

// Reconciler renders PackageRevisions. One render, step by step:
//
//  1. Edit: the API server stores it; Kiln takes no part in the call.
//  2. Schedule: decide finds contents that no outcome speaks of.
//  3. Run: start creates the Job and hands it its snapshot.
//  4. Cancel: a render that an edit made pointless is removed, and 2 begins again.
//  5. Harvest: a published result is verified and applied, if the contents are still those it came from.
//  6. Clean up: the Job owns snapshot and result; the history limits are applied before the next start.
type Reconciler struct {
	// Client reads from the cache, which never is older than the client's own writes, and writes.
	Client   client.Client
	Store    RevisionStore
	Executor Executor
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	memory   memory
	rejected rejectedResults
}

const (
	// immediately asks for another look at once.
	immediately = time.Millisecond
	// staleRetry is how long the cache is given to learn what the API server has.
	staleRetry = 10 * time.Millisecond
	// refusedRetry is the last resort when what a refused render waits for does not wake it.
	refusedRetry = 30 * time.Second
)

// Reconcile brings one PackageRevision a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx, req.NamespacedName)
	if err != nil || o == nil {
		return ctrl.Result{}, err
	}
	p := decide(*o)
	ctrl.LoggerFrom(ctx).V(1).Info("Decided", "digest", o.contents.digest, "decision", p.String())
	result, err := r.act(ctx, *o, p)
	switch {
	case errors.Is(err, ErrStale):
		// The revision is newer than what was observed, or gone. The change need not be one that wakes the controller, so it
		// looks again, when the cache should have it.
		ctrl.LoggerFrom(ctx).V(1).Info("The revision changed meanwhile", "cause", err.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case errors.Is(err, ErrClosing):
		return ctrl.Result{}, nil
	}
	return result, err
}

// observe gathers what decide needs, from the cache; what the cache lacks is looked up live. It returns nil when there is
// nothing to do for the key.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*observed, error) {
	rev := &kiln.PackageRevision{}
	if err := r.Client.Get(ctx, key, rev); err != nil {
		if apierrors.IsNotFound(err) {
			r.memory.forget(key)
			return nil, nil // The garbage collector removes its Jobs.
		}
		return nil, fmt.Errorf("read PackageRevision %s: %w", key, err)
	}
	o := &observed{now: r.Clock.Now(), revision: rev, contents: summaryOf(rev)}

	expected := ""
	if at := rev.Status.Render; at != nil && at.Phase == kiln.PhaseRunning {
		expected = at.JobName
	}
	renders, err := r.Executor.Renders(ctx, rev, expected)
	if err != nil {
		return nil, fmt.Errorf("list the renders of PackageRevision %s: %w", key, err)
	}
	for i := range renders {
		renders[i].Results = slices.DeleteFunc(renders[i].Results, func(s StoredResult) bool { return r.rejected.has(s.UID) })
	}
	slices.SortFunc(renders, newestFirst)
	o.renders = renders
	r.memory.recall(o)

	if o.class, err = classOf(ctx, r.Client, rev); err != nil {
		return nil, err
	}
	return o, nil
}

// act carries a plan out.
func (r *Reconciler) act(ctx context.Context, o observed, p plan) (ctrl.Result, error) {
	for _, render := range p.cancel {
		if err := r.Executor.Cancel(ctx, render); err != nil {
			return ctrl.Result{}, fmt.Errorf("cancel render %s: %w", render.Name, err)
		}
		r.memory.cancelled(o.revision, render)
		supersededTotal.Inc()
	}
	switch {
	case p.start > 0:
		return r.start(ctx, o, p)
	case p.supply != nil:
		return r.supply(ctx, o, p)
	case p.harvest != nil:
		return r.harvest(ctx, o, p)
	case p.setRight != nil:
		return ctrl.Result{}, r.setRight(ctx, o, p)
	case p.giveUp != nil:
		return ctrl.Result{}, r.giveUp(ctx, o, p, *p.giveUp, kiln.ReasonDeadlineExceeded,
			fmt.Sprintf("Render %s took longer than its RenderClass allows (spec.activeDeadlineSeconds).", p.giveUp.Name))
	}
	return ctrl.Result{RequeueAfter: p.requeueAfter}, r.conclude(ctx, o.revision, o, p)
}

// start begins a render of the live contents, provided they are still the ones that were observed.
func (r *Reconciler) start(ctx context.Context, o observed, p plan) (ctrl.Result, error) {
	live, err := r.Store.Read(ctx, o.key())
	if err != nil {
		return ctrl.Result{}, err
	}
	if live.Revision.UID != o.revision.UID || bundle.Digest(live.Files) != o.contents.digest || live.Revision.Spec.Lifecycle != kiln.LifecycleDraft {
		return ctrl.Result{}, nil // A newer edit is on its way to the cache; it absorbs this one.
	}
	for _, render := range p.prune {
		if err := r.Executor.Cancel(ctx, render); err != nil {
			return ctrl.Result{}, fmt.Errorf("remove render %s, which the history limits leave no room for: %w", render.Name, err)
		}
	}
	if live, err = r.correctKptfile(ctx, live, o.contents.digest); err != nil {
		return ctrl.Result{}, err
	}
	p.status.PackageConditions = packageConditions(live.Files[rootKptfile])

	render, err := r.Executor.Start(ctx, Order{
		Revision:    live.Revision,
		Class:       o.class,
		InputDigest: o.contents.digest,
		Request:     requestOf(o.revision),
		Attempt:     p.start,
	})
	if reason := refusalReason(err); reason != "" {
		p.tell(inProgress(reason, err.Error()))
		return ctrl.Result{RequeueAfter: refusedRetry}, r.conclude(ctx, live.Revision, o, p)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("start the render: %w", err)
	}
	if !o.seen.IsZero() && p.start == 1 {
		editToJobSeconds.Observe(r.Clock.Since(o.seen).Seconds())
	}
	startedAs(&p.status, render)
	p.tell(runningStory(render))
	p.events = append(p.events, startedEvent(render))
	return r.handOver(ctx, o, p, render, live)
}

// correctKptfile takes back what the root Kptfile claims of a render that is over, now that another one begins.
func (r *Reconciler) correctKptfile(ctx context.Context, live *Contents, digest string) (*Contents, error) {
	text, ok := live.Files[rootKptfile]
	if !ok || !kptfileLies(packageConditions(text), digest) {
		return live, nil
	}
	corrected, err := kptfile.SetConditions(text, kptfileInProgress(digest), kiln.ConditionRendered)
	if err != nil {
		return live, nil // Nothing can be told in a Kptfile that cannot be edited; the object's conditions tell it.
	}
	written, err := r.Store.Apply(ctx, live, withFile(live.Files, rootKptfile, corrected))
	if errors.Is(err, ErrDoesNotFit) {
		return live, nil
	}
	return written, err
}

// setRight makes the root Kptfile tell the last outcome again: somebody wrote over what it said, and over nothing that is
// rendered.
func (r *Reconciler) setRight(ctx context.Context, o observed, p plan) error {
	live, err := r.Store.Read(ctx, o.key())
	if err != nil {
		return err
	}
	if live.Revision.UID != o.revision.UID || bundle.Digest(live.Files) != o.contents.digest || live.Revision.Spec.Lifecycle != kiln.LifecycleDraft {
		return nil // A newer edit is on its way to the cache.
	}
	written, err := r.Store.Apply(ctx, live, withConclusion(live.Files, live.Files, p.setRight))
	if errors.Is(err, ErrDoesNotFit) {
		written, err = live, nil
	}
	if err != nil {
		return err
	}
	p.status.PackageConditions = packageConditions(written.Files[rootKptfile])
	return r.conclude(ctx, written.Revision, o, p)
}

// supply hands a render the snapshot that a predecessor died before writing. If the contents are not the render's any more,
// the next look at them cancels it.
func (r *Reconciler) supply(ctx context.Context, o observed, p plan) (ctrl.Result, error) {
	live, err := r.Store.Read(ctx, o.key())
	if err != nil {
		return ctrl.Result{}, err
	}
	if bundle.Digest(live.Files) != p.supply.InputDigest {
		return ctrl.Result{}, nil
	}
	return r.handOver(ctx, o, p, *p.supply, live)
}

// handOver gives a render its snapshot and writes down that it runs.
func (r *Reconciler) handOver(ctx context.Context, o observed, p plan, render Render, live *Contents) (ctrl.Result, error) {
	err := r.Executor.Supply(ctx, render, live.Files)
	switch {
	case errors.Is(err, bundle.ErrTooLarge):
		if err := r.Executor.Cancel(ctx, render); err != nil {
			return ctrl.Result{}, fmt.Errorf("cancel render %s: %w", render.Name, err)
		}
		return ctrl.Result{}, r.giveUp(ctx, o, p, render, kiln.ReasonResultTooLarge, "The snapshot of the contents does not fit the API server: "+err.Error()+". Split the package.")
	case refusalReason(err) != "":
		// The pod waits for its snapshot. With a stranger's object in place of it the render fails, and the next attempt has
		// another name.
		p.tell(inProgress(refusalReason(err), err.Error()))
		return ctrl.Result{RequeueAfter: refusedRetry}, r.conclude(ctx, live.Revision, o, p)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("hand render %s its snapshot: %w", render.Name, err)
	}
	return ctrl.Result{}, r.conclude(ctx, live.Revision, o, p)
}

// refusalReason is the reason to tell for a render that could not be started, if waiting may help.
func refusalReason(err error) string {
	switch {
	case errors.Is(err, ErrQuota):
		return kiln.ReasonQuotaExceeded
	case errors.Is(err, ErrNameTaken):
		return kiln.ReasonJobNameTaken
	case errors.Is(err, ErrIdentity):
		return kiln.ReasonIdentityInvalid
	}
	return ""
}

// conclude writes the status, once and only if it says something new, and then emits the events.
func (r *Reconciler) conclude(ctx context.Context, rev *kiln.PackageRevision, o observed, p plan) error {
	if p.story != nil {
		tell(&p.status, *p.story, rev.Generation, o.now)
	}
	if err := writeStatus(ctx, r.Client, rev, p.status); err != nil {
		return err
	}
	r.memory.written(o.revision, p.story != nil && p.story.finished)
	for _, e := range p.events {
		r.Recorder.Eventf(rev, nil, e.kind, e.reason, eventAction, "%s", e.note)
	}
	return nil
}
