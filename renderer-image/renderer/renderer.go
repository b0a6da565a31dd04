// Package renderer is what a render's pod does: read the snapshot, run the pipeline, publish the result.
package renderer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// Config is what the Job's pod template and the downward API tell the renderer.
type Config struct {
	SnapshotDir string
	InputDigest string
	Package     string
	Revision    string
	Publisher   bundle.Publisher
	// Version is the renderer's own.
	Version string
}

// ConfigFromEnv reads the configuration from the environment. It fails if any of it is missing.
func ConfigFromEnv(version string) (Config, error) {
	var missing []error
	env := func(name string) string {
		value := os.Getenv(name)
		if value == "" {
			missing = append(missing, fmt.Errorf("the environment has no %s", name))
		}
		return value
	}
	config := Config{
		SnapshotDir: env(bundle.EnvSnapshotDir),
		InputDigest: env(bundle.EnvInputDigest),
		Package:     env(bundle.EnvPackage),
		Revision:    env(bundle.EnvRevision),
		Publisher: bundle.Publisher{
			Job: bundle.Job{Namespace: env(bundle.EnvNamespace), Name: env(bundle.EnvJobName), UID: types.UID(env(bundle.EnvJobUID))},
			Pod: env(bundle.EnvPodName),
			UID: types.UID(env(bundle.EnvPodUID)),
		},
		Version: version,
	}
	return config, errors.Join(missing...)
}

// Publish makes a result known to the controller.
type Publish func(ctx context.Context, publisher bundle.Publisher, result *bundle.Result) error

// Run renders once and returns the exit code; log receives what `kubectl logs` shows.
func Run(ctx context.Context, config Config, publish Publish, log io.Writer) int {
	say := func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }

	input, err := readSnapshot(config)
	if err != nil {
		say("%v", err)
		return bundle.ExitUnable
	}
	say("Rendering package %s, revision %s: %d files, contents %.12s", config.Package, config.Revision, len(input), config.InputDigest)

	result, err := render(ctx, config, input, say)
	if err == nil {
		err = publish(ctx, config.Publisher, result)
	}
	if errors.Is(err, bundle.ErrTooLarge) {
		result = tooLarge(result, input, err)
		err = publish(ctx, config.Publisher, result)
	}
	if ctx.Err() != nil {
		say("Cancelled; nothing is published")
		return bundle.ExitCancelled
	}
	if err != nil {
		say("The result could not be published: %v", err)
		return bundle.ExitUnable
	}
	if !result.Succeeded {
		say("Failed: %s: %s", result.FailureReason, result.FailureMessage)
		return bundle.ExitRenderFailed
	}
	say("Rendered in %d ms: %d files changed, %d deleted, contents %.12s", result.FinishTime.Sub(result.StartTime).Milliseconds(), len(result.Changed), len(result.Deleted), result.OutputDigest)
	return bundle.ExitRendered
}

func readSnapshot(config Config) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(config.SnapshotDir, bundle.SnapshotKey))
	if err != nil {
		return nil, fmt.Errorf("read the snapshot: %w", err)
	}
	return bundle.UnpackSnapshot(data, config.InputDigest, bundle.DefaultLimits)
}

// render runs the pipeline. It fails only when ctx is done.
func render(ctx context.Context, config Config, input map[string]string, say func(string, ...any)) (*bundle.Result, error) {
	result := &bundle.Result{RendererVersion: config.Version, StartTime: time.Now()}
	outcome, err := pipeline.Render(ctx, input, pipeline.Options{
		Functions: function.Builtins(),
		OnStep:    func(step pipeline.Step) { sayStep(step, say) },
	})
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	result.FinishTime = time.Now()
	result.Diff(input, outcome.Files)
	result.Succeeded = outcome.Failure == nil
	if outcome.Failure != nil {
		result.FailureReason, result.FailureMessage = string(outcome.Failure.Class), outcome.Failure.Message
	}
	for _, step := range outcome.Steps {
		result.Steps = append(result.Steps, stepOf(step))
	}
	return result, nil
}

// tooLarge is the failure that is published in place of a result that is too large to publish.
func tooLarge(result *bundle.Result, input map[string]string, cause error) *bundle.Result {
	failure := &bundle.Result{
		FailureReason:   "ResultTooLarge",
		FailureMessage:  cause.Error() + ". Split the package.",
		RendererVersion: result.RendererVersion,
		StartTime:       result.StartTime,
		FinishTime:      result.FinishTime,
	}
	failure.Diff(input, input)
	return failure
}

func stepOf(step pipeline.Step) bundle.Step {
	s := bundle.Step{
		Package:              step.Package,
		Phase:                string(step.Phase),
		Name:                 step.Name,
		Image:                nameOf(step),
		ExitCode:             step.ExitCode,
		DurationMilliseconds: step.Duration.Milliseconds(),
		Stderr:               step.Stderr,
	}
	for _, r := range step.Results {
		s.Results = append(s.Results, stepResultOf(r))
	}
	return s
}

func nameOf(step pipeline.Step) string {
	if step.Image != "" {
		return step.Image
	}
	return step.Exec
}

// sayStep writes a step into the log: a line, and what the function said below it.
func sayStep(step pipeline.Step, say func(string, ...any)) {
	verdict := "ok"
	if step.ExitCode != 0 {
		verdict = fmt.Sprintf("FAILED with exit code %d", step.ExitCode)
	}
	say("[%s] %s %s: %s (%d resources, %d ms)", step.Package, step.Phase, nameOf(step), verdict, step.Items, step.Duration.Milliseconds())
	for _, r := range step.Results {
		say("    %s", describe(stepResultOf(r)))
	}
	if step.Stderr != "" {
		say("    stderr: %s", step.Stderr)
	}
}

func describe(r bundle.StepResult) string {
	text := r.Message
	for _, part := range []struct{ label, value string }{{"file", r.File}, {"resource", r.Resource}, {"field", r.Field}} {
		if part.value != "" {
			text += fmt.Sprintf(", %s %s", part.label, part.value)
		}
	}
	if r.Severity == "" {
		return text
	}
	return r.Severity + ": " + text
}

func stepResultOf(r function.Result) bundle.StepResult {
	result := bundle.StepResult{Severity: string(r.Severity), Message: r.Message}
	if ref := r.ResourceRef; ref != nil {
		result.Resource = strings.Join([]string{ref.APIVersion, ref.Kind, ref.Namespace, ref.Name}, "/")
	}
	if r.Field != nil {
		result.Field = r.Field.Path
	}
	if r.File != nil {
		result.File = r.File.Path
	}
	return result
}
