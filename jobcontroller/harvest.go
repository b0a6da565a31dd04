package jobcontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"

	ctrl "sigs.k8s.io/controller-runtime"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/kptfile"
)

// applyTries bounds how often a result is applied anew after somebody wrote something else of the revision. When they are
// used up the key comes again, as after every conflict.
const applyTries = 5

// harvest verifies a result and applies it, if the contents are the ones it came from.
func (r *Reconciler) harvest(ctx context.Context, o observed, p plan) (ctrl.Result, error) {
	began := r.Clock.Now()
	h := p.harvest
	result, err := r.Executor.Fetch(ctx, h.render, h.result)
	if err == nil {
		err = r.settle(ctx, o, p, h.render, outcomeOf(result, h.render), result)
	}
	if errors.Is(err, ErrNotAResult) {
		ctrl.LoggerFrom(ctx).Info("A result is not valid and is left alone", "job", h.render.Name, "result", h.result.Name, "cause", err.Error())
		r.rejected.add(h.result.UID)
		rejectedTotal.Inc()
		return ctrl.Result{RequeueAfter: immediately}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("harvest render %s: %w", h.render.Name, err)
	}
	harvestSeconds.Observe(r.Clock.Since(began).Seconds())
	return ctrl.Result{}, nil
}

// giveUp settles a render that has no result, in a way that another attempt would not change.
func (r *Reconciler) giveUp(ctx context.Context, o observed, p plan, render Render, reason, message string) error {
	outcome := kiln.RenderOutcome{
		Reason:      reason,
		Message:     truncate(message, maxOutcomeMessage),
		InputDigest: render.InputDigest,
		Request:     render.Request,
		JobName:     render.Name,
		JobUID:      string(render.UID),
	}
	if err := r.settle(ctx, o, p, render, outcome, nil); err != nil {
		return fmt.Errorf("give render %s up: %w", render.Name, err)
	}
	return nil
}

// settle applies an outcome and writes it down. It does nothing if the contents have changed since the snapshot: the edit is
// on its way to the cache, and the next pass counts the render as superseded.
func (r *Reconciler) settle(ctx context.Context, o observed, p plan, render Render, outcome kiln.RenderOutcome, result *bundle.Result) error {
	replay := p.harvest != nil && p.harvest.replay
	written, err := r.apply(ctx, o, &outcome, result)
	if errors.Is(err, errSuperseded) {
		return nil
	}
	if err != nil {
		return err
	}
	r.memory.harvested(o.revision, render)
	if outcome.OutputDigest == outcome.InputDigest && !outcome.Succeeded {
		outcome.OutputDigest = "" // Nothing was applied.
	}
	settled(&p.status, render, outcome, stepsOf(result), replay, r.Clock.Now())
	p.status.PackageConditions = packageConditions(written.Files[rootKptfile])
	p.tell(outcomeStory(&outcome))
	p.events = append(p.events, outcomeEvent(&outcome, replay))
	if err := r.conclude(ctx, written.Revision, o, p); err != nil {
		return err
	}
	observeOutcome(p.status.Render, &outcome, replay)
	return nil
}

// errSuperseded says that the contents are not those of the result any more.
var errSuperseded = errors.New("the contents have changed since the snapshot")

// apply writes an outcome's contents and Kptfile conditions in one patch, as long as the live contents are those that
// were rendered. result is nil when a render left none. The outcome is completed with what was applied, or becomes a
// failure when the rendered contents do not fit.
func (r *Reconciler) apply(ctx context.Context, o observed, outcome *kiln.RenderOutcome, result *bundle.Result) (*Contents, error) {
	var err error
	for range applyTries {
		var live, written *Contents
		if live, err = r.Store.Read(ctx, o.key()); err != nil {
			return nil, err
		}
		if live.Revision.UID != o.revision.UID {
			return nil, errSuperseded
		}
		if result != nil && bundle.Digest(live.Files) == result.OutputDigest {
			outcome.OutputDigest = result.OutputDigest
			if live.Revision.Spec.Lifecycle != kiln.LifecycleDraft {
				return live, nil // Its files are not touched any more.
			}
			written, err = r.Store.Apply(ctx, live, withConclusion(live.Files, live.Files, outcome))
		} else if bundle.Digest(live.Files) != outcome.InputDigest || live.Revision.Spec.Lifecycle != kiln.LifecycleDraft {
			return nil, errSuperseded
		} else {
			written, err = r.applyTo(ctx, live, outcome, result)
		}
		if errors.Is(err, ErrDoesNotFit) {
			// Not even the conditions fit: the object's own have to do.
			return live, nil
		}
		if !errors.Is(err, ErrStale) {
			return written, err
		}
		conflictsTotal.Inc()
	}
	return nil, err
}

// applyTo applies an outcome to the contents it came from.
func (r *Reconciler) applyTo(ctx context.Context, live *Contents, outcome *kiln.RenderOutcome, result *bundle.Result) (*Contents, error) {
	files := live.Files
	if result != nil {
		output, err := result.Apply(live.Files)
		if err != nil {
			// Its input is there, so it is the result that does not hold.
			return nil, fmt.Errorf("%w: %w", ErrNotAResult, err)
		}
		files = output
		outcome.OutputDigest = result.OutputDigest
	}
	written, err := r.Store.Apply(ctx, live, withConclusion(files, live.Files, outcome))
	if !errors.Is(err, ErrDoesNotFit) || len(changesBetween(live.Files, files)) == 0 {
		return written, err
	}
	outcome.Succeeded = false
	outcome.Reason = kiln.ReasonResultTooLarge
	outcome.Message = "The rendered files were not applied: " + err.Error() + ". Split the package."
	outcome.OutputDigest = ""
	return r.Store.Apply(ctx, live, withConclusion(live.Files, live.Files, outcome))
}

// withConclusion puts the outcome into the root Kptfile of the files. The conditions that others set in the live one
// since the snapshot was taken are kept.
func withConclusion(files, live map[string]string, outcome *kiln.RenderOutcome) map[string]string {
	text, ok := files[rootKptfile]
	if !ok {
		return files
	}
	set := kptfileConclusion(outcome)
	if live[rootKptfile] != text {
		set = append(othersConditions(live[rootKptfile]), set...)
	}
	concluded, err := kptfile.SetConditions(text, set)
	if err != nil {
		return files // It cannot be edited; the object's conditions tell it.
	}
	return withFile(files, rootKptfile, concluded)
}

func othersConditions(content string) []kptfile.Condition {
	conditions, err := kptfile.Conditions(content)
	if err != nil {
		return nil
	}
	var others []kptfile.Condition
	for _, c := range conditions {
		if c.Type != kiln.ConditionRenderFinished && c.Type != kiln.ConditionRendered {
			others = append(others, c)
		}
	}
	return others
}

// conditionReason is what the API server takes for the reason of a condition.
var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)

// maxOutcomeMessage is the API's bound on status.lastOutcome.message.
const maxOutcomeMessage = 4096

func outcomeOf(result *bundle.Result, render Render) kiln.RenderOutcome {
	outcome := kiln.RenderOutcome{
		Succeeded:   result.Succeeded,
		Reason:      kiln.ReasonRenderSuccess,
		InputDigest: result.InputDigest,
		Request:     render.Request,
		JobName:     render.Name,
		JobUID:      string(render.UID),
	}
	if !result.Succeeded {
		outcome.Reason = result.FailureReason
		if !conditionReason.MatchString(outcome.Reason) {
			outcome.Reason = kiln.ReasonRenderFailed
		}
		outcome.Message = truncate(cmp.Or(result.FailureMessage, "The renderer gave no message."), maxOutcomeMessage)
	}
	return outcome
}

// Bounds of what the status keeps of a pipeline's steps; they are those of the API.
const (
	maxSteps        = 64
	maxStepMessages = 3
	maxStepMessage  = 256
	maxStepName     = 512
)

func stepsOf(result *bundle.Result) []kiln.RenderStep {
	if result == nil {
		return nil
	}
	var steps []kiln.RenderStep
	for _, s := range result.Steps[:min(len(result.Steps), maxSteps)] {
		step := kiln.RenderStep{
			Package:              truncate(s.Package, maxStepName),
			Function:             truncate(cmp.Or(s.Image, s.Name), maxStepName),
			ExitCode:             int32(s.ExitCode),
			DurationMilliseconds: s.DurationMilliseconds,
		}
		for _, r := range s.Results {
			switch r.Severity {
			case "error":
				step.Errors++
			case "warning":
				step.Warnings++
			default:
				step.Infos++
			}
			if len(step.Messages) < maxStepMessages {
				step.Messages = append(step.Messages, truncate(r.Message, maxStepMessage))
			}
		}
		if len(step.Messages) == 0 && s.Stderr != "" {
			step.Messages = []string{truncate(s.Stderr, maxStepMessage)}
		}
		steps = append(steps, step)
	}
	return steps
}
