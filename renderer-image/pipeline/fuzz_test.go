package pipeline_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
	. "github.com/onsi/gomega"
)

// fileMark separates the files in the text that the fuzzer works on: a line with the mark and the path, then the content.
const fileMark = "\x00 "

func joinFiles(files map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		out.WriteString(fileMark + name + "\n" + files[name])
	}
	return out.String()
}

func splitFiles(text string) map[string]string {
	files := map[string]string{}
	for _, part := range strings.Split(text, fileMark)[1:] {
		name, content, _ := strings.Cut(part, "\n")
		files[name] = content
	}
	return files
}

// FuzzRender renders arbitrary trees. It must not panic, hang or touch its input, must give the same outcome again, and must write
// only paths inside the package.
func FuzzRender(f *testing.F) {
	for _, name := range packageNames(f) {
		f.Add(joinFiles(readTree(f, filepath.Join("testdata", "packages", name, "in"))))
	}
	f.Add(joinFiles(map[string]string{"Kptfile": plainKptfile, "a.yaml": "a: &a [*a]"}))
	f.Add(joinFiles(map[string]string{"Kptfile": plainKptfile, "a.json": `{"a": [1, "`}))
	f.Add(joinFiles(map[string]string{"Kptfile": plainKptfile, "sub/Kptfile": "%YAML 1.2\n---\n" + plainKptfile}))
	f.Fuzz(func(t *testing.T, text string) {
		g := NewWithT(t)
		files := splitFiles(text)
		before := maps.Clone(files)
		options := pipeline.Options{
			Functions: function.Builtins(),
			Limits:    pipeline.Limits{MaxStarlarkSteps: 100_000, MaxBytes: 1 << 20, MaxResources: 1000},
		}
		outcome, err := pipeline.Render(context.Background(), files, options)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files).To(Equal(before))
		for name := range outcome.Files {
			if _, known := files[name]; !known {
				g.Expect(filepath.IsLocal(name)).To(BeTrue(), name)
			}
		}
		if outcome.Failure != nil {
			g.Expect(outcome.Failure.Message).NotTo(BeEmpty())
			g.Expect(outcome.Failure.Message).NotTo(ContainSubstring("crashed"))
		}
		for _, step := range outcome.Steps {
			g.Expect(utf8.ValidString(step.Stderr)).To(BeTrue())
		}
		again, err := pipeline.Render(context.Background(), before, options)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again.Files).To(Equal(outcome.Files))
		g.Expect(again.Failure).To(Equal(outcome.Failure))
	})
}

// TestTheOrderOfFilesDoesNotMatter renders the same files from maps that were filled in other orders.
func TestTheOrderOfFilesDoesNotMatter(t *testing.T) {
	for _, name := range packageNames(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files := readTree(t, filepath.Join("testdata", "packages", name, "in"))
			want := render(t, files)
			names := slices.Sorted(maps.Keys(files))
			for range 10 {
				rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				shuffled := map[string]string{}
				for _, name := range names {
					shuffled[name] = files[name]
				}
				got := render(t, shuffled)
				g.Expect(got.Files).To(Equal(want.Files))
				g.Expect(describeOutcome(got)).To(Equal(describeOutcome(want)))
			}
		})
	}
}
