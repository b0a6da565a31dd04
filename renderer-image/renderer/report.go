package renderer

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

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
	name := nameOf(step)
	if step.Name != "" {
		name = step.Name + " (" + name + ")"
	}
	say("[%s] %s %s: %s (%d resources, %d ms)", step.Package, step.Phase, name, verdict, step.Items, step.Duration.Milliseconds())
	for _, r := range step.Results {
		say("    %s", describe(stepResultOf(r)))
	}
	if step.Stderr != "" {
		say("    stderr: %s", strings.ReplaceAll(step.Stderr, "\n", "\n    "))
	}
}

// maxSaidFiles bounds the list of changed files in the log.
const maxSaidFiles = 100

// sayChanges lists what is different now.
func sayChanges(result *bundle.Result, say func(string, ...any)) {
	left := maxSaidFiles
	list := func(what string, paths []string) {
		for _, path := range paths[:min(len(paths), left)] {
			say("%s %s", what, path)
		}
		left -= min(len(paths), left)
	}
	list("changed", slices.Sorted(maps.Keys(result.Changed)))
	list("deleted", result.Deleted)
	if more := len(result.Changed) + len(result.Deleted) - maxSaidFiles; more > 0 {
		say("and %d files more", more)
	}
}

const (
	// terminationLog is where the kubelet looks for a container's last words. It has no path in an ordinary process.
	terminationLog = "/dev/termination-log"
	// maxTerminationMessage is how much of them the kubelet takes.
	maxTerminationMessage = 4096
)

// leaveTerminationMessage is for people who look at the pod and not at its log. Nothing depends on it.
func leaveTerminationMessage(message string) {
	file, err := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = io.WriteString(file, message[:min(len(message), maxTerminationMessage)])
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
