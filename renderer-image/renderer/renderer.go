// Package renderer is what a render's pod does: read the snapshot, run the pipeline, publish the result.
package renderer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// Run renders once and returns the exit code; log receives what `kubectl logs` shows. The last line of it is the pod's
// termination message, too.
func Run(ctx context.Context, config Config, publish Publish, log io.Writer) int {
	say := func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }
	code, message := run(ctx, config, publish, say)
	say("%s", message)
	leaveTerminationMessage(message)
	return code
}

func run(ctx context.Context, config Config, publish Publish, say func(string, ...any)) (code int, message string) {
	input, err := readSnapshot(config)
	if err != nil {
		return bundle.ExitUnable, fmt.Sprintf("Cannot render: %v", err)
	}
	say("Rendering package %s, revision %s: %d files, contents %.12s", config.Package, config.Revision, len(input), config.InputDigest)

	result, err := render(ctx, config, input, say)
	if err != nil {
		return bundle.ExitCancelled, "Cancelled; nothing is published"
	}
	sayChanges(result, say)
	err = publish(ctx, config.Publisher, result)
	if errors.Is(err, bundle.ErrTooLarge) {
		result = failed(result, input, "ResultTooLarge", err.Error()+". Split the package.")
		err = publish(ctx, config.Publisher, result)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return bundle.ExitCancelled, "Cancelled before the result was published"
	case err != nil:
		return bundle.ExitUnable, fmt.Sprintf("The result could not be published: %v", err)
	}
	say("Published as ConfigMap %s", config.Publisher.IndexName())
	if !result.Succeeded {
		return bundle.ExitRenderFailed, fmt.Sprintf("Failed: %s: %s", result.FailureReason, result.FailureMessage)
	}
	return bundle.ExitRendered, fmt.Sprintf("Rendered in %d ms: %d files changed, %d deleted, contents %.12s",
		result.FinishTime.Sub(result.StartTime).Milliseconds(), len(result.Changed), len(result.Deleted), result.OutputDigest)
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
	if err := bundle.CheckTree(input); err != nil {
		result.FinishTime = time.Now()
		return failed(result, input, string(pipeline.InvalidPackage), err.Error()), nil
	}
	outcome, err := pipeline.Render(ctx, input, pipeline.Options{
		Functions: function.Builtins(),
		OnStep:    func(step pipeline.Step) { sayStep(step, say) },
	})
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	result.FinishTime = time.Now()
	for _, step := range outcome.Steps {
		result.Steps = append(result.Steps, stepOf(step))
	}
	if err := bundle.CheckTree(outcome.Files); err != nil {
		failure := failed(result, input, string(pipeline.InvalidOutput), err.Error())
		failure.Steps = result.Steps
		return failure, nil
	}
	result.Diff(input, outcome.Files)
	result.Succeeded = outcome.Failure == nil
	if outcome.Failure != nil {
		result.FailureReason, result.FailureMessage = string(outcome.Failure.Class), outcome.Failure.Message
	}
	return result, nil
}

// failed is the failure that takes the place of a result that must not or cannot be published. It has no steps: they may be
// what is too large.
func failed(result *bundle.Result, input map[string]string, reason, message string) *bundle.Result {
	failure := &bundle.Result{
		FailureReason:   reason,
		FailureMessage:  message,
		RendererVersion: result.RendererVersion,
		StartTime:       result.StartTime,
		FinishTime:      result.FinishTime,
	}
	failure.Diff(input, input)
	return failure
}
