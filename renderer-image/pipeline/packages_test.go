package pipeline_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

var update = flag.Bool("update", false, "write what the packages in testdata render to")

// TestPackages renders each package in testdata/packages and compares all its files, byte for byte, and its steps with those
// in want and steps.
func TestPackages(t *testing.T) {
	for _, name := range packageNames(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := filepath.Join("testdata", "packages", name)
			in := readTree(t, filepath.Join(folder, "in"))
			before := maps.Clone(in)
			outcome := render(t, in)
			g.Expect(in).To(Equal(before), "Render must not change its input")
			got := describeOutcome(outcome)
			if *update {
				writeTree(t, filepath.Join(folder, "want"), outcome.Files)
				g.Expect(os.WriteFile(filepath.Join(folder, "steps"), []byte(got), 0o644)).To(Succeed())
			}
			steps, err := os.ReadFile(filepath.Join(folder, "steps"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(string(steps)))
			g.Expect(differences(outcome.Files, readTree(t, filepath.Join(folder, "want")), byBytes)).To(BeEmpty())

			if outcome.Failure == nil {
				again := render(t, outcome.Files)
				g.Expect(again.Failure).To(BeNil())
				g.Expect(differences(again.Files, outcome.Files, byBytes)).To(BeEmpty(), "a second render must change nothing")
			}
		})
	}
}

func packageNames(tb testing.TB) []string {
	tb.Helper()
	folders, err := os.ReadDir(filepath.Join("testdata", "packages"))
	if err != nil {
		tb.Fatal(err)
	}
	names := make([]string, len(folders))
	for i, folder := range folders {
		names[i] = folder.Name()
	}
	return names
}

// describeOutcome writes steps and failure without the times.
func describeOutcome(outcome *pipeline.Outcome) string {
	var out strings.Builder
	for _, step := range outcome.Steps {
		fmt.Fprintf(&out, "%s %s %q %s%s: exit %d, %d items\n", step.Package, step.Phase, step.Name, step.Image, step.Exec,
			step.ExitCode, step.Items)
		for _, result := range step.Results {
			fmt.Fprintf(&out, "  %s\n", describeResult(result))
		}
		for line := range strings.Lines(step.Stderr) {
			fmt.Fprintf(&out, "  | %s\n", strings.TrimRight(line, "\n"))
		}
	}
	if outcome.Failure != nil {
		fmt.Fprintf(&out, "%s: %s\n", outcome.Failure.Class, outcome.Failure.Message)
	}
	return out.String()
}

func describeResult(result function.Result) string {
	text := fmt.Sprintf("[%s] %s", result.Severity, result.Message)
	if ref := result.ResourceRef; ref != nil {
		text += fmt.Sprintf(" (%s %s %s/%s)", ref.APIVersion, ref.Kind, ref.Namespace, ref.Name)
	}
	if result.File != nil {
		text += fmt.Sprintf(" in %s[%d]", result.File.Path, result.File.Index)
	}
	if result.Field != nil {
		text += " at " + result.Field.Path
	}
	return text
}

func writeTree(tb testing.TB, root string, files map[string]string) {
	tb.Helper()
	if err := os.RemoveAll(root); err != nil {
		tb.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(files[name]), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}
