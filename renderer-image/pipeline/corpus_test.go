package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"
)

// corpusCase is one package of the corpus with what the reference implementation makes of it.
type corpusCase struct {
	name     string
	in, want map[string]string
	fails    bool
}

func corpusRoot(tb testing.TB) string {
	tb.Helper()
	root := os.Getenv("KILN_CORPUS")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "corpus")
	}
	if _, err := os.Stat(root); err != nil {
		tb.Skipf("no corpus: set KILN_CORPUS to its folder (%s)", err)
	}
	return root
}

func corpusCases(tb testing.TB, set string) []corpusCase {
	tb.Helper()
	root := filepath.Join(corpusRoot(tb), set)
	folders, err := os.ReadDir(root)
	if err != nil {
		tb.Fatal(err)
	}
	var cases []corpusCase
	for _, folder := range folders {
		at := filepath.Join(root, folder.Name())
		exit, err := os.ReadFile(filepath.Join(at, "exit"))
		if err != nil {
			tb.Fatal(err)
		}
		cases = append(cases, corpusCase{
			name:  folder.Name(),
			in:    readTree(tb, filepath.Join(at, "in")),
			want:  readTree(tb, filepath.Join(at, "want")),
			fails: strings.TrimSpace(string(exit)) != "0",
		})
	}
	return cases
}

func readTree(tb testing.TB, root string) map[string]string {
	tb.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

func render(tb testing.TB, files map[string]string) *pipeline.Outcome {
	tb.Helper()
	outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{Functions: function.Builtins()})
	if err != nil {
		tb.Fatal(err)
	}
	return outcome
}

// withoutStatus cuts the top-level status out of a Kptfile: this package does not write it.
func withoutStatus(kptfile string) string {
	var kept strings.Builder
	inStatus := false
	for line := range strings.Lines(kptfile) {
		if strings.TrimSpace(line) != "" && !strings.ContainsAny(line[:1], " -#") {
			inStatus = strings.HasPrefix(line, "status:")
		}
		if !inStatus {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// values decodes all documents of a file.
func values(text string) ([]any, error) {
	var documents []any
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document any
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, err
		}
		if document != nil {
			documents = append(documents, document)
		}
	}
}

// comparison says how the files of a case are compared.
type comparison int

const (
	byBytes comparison = iota
	byValue
)

// differences lists the files of got that are not as wanted.
func differences(got, want map[string]string, how comparison) []string {
	var found []string
	for _, file := range slices.Sorted(maps.Keys(want)) {
		text, exists := got[file]
		if !exists {
			found = append(found, file+" is missing")
			continue
		}
		expected := want[file]
		if file == "Kptfile" {
			text, expected = withoutStatus(text), withoutStatus(expected)
		}
		if text == expected || (how == byValue && sameValues(file, text, expected)) {
			continue
		}
		found = append(found, fmt.Sprintf("%s differs:\n--- got\n%s\n--- want\n%s", file, text, expected))
	}
	for _, file := range slices.Sorted(maps.Keys(got)) {
		if _, exists := want[file]; !exists {
			found = append(found, file+" should not be there")
		}
	}
	return found
}

func sameValues(file, got, want string) bool {
	if ext := filepath.Ext(file); ext != ".yaml" && ext != ".yml" && ext != ".json" && filepath.Base(file) != "Kptfile" {
		return false
	}
	a, err := values(got)
	if err != nil {
		return false
	}
	b, err := values(want)
	return err == nil && reflect.DeepEqual(a, b)
}

// knownGaps are the cases that do not pass yet, each with the reason. One that passes must be taken off the list.
var knownGaps = map[string]string{}

// keptDifferences are cases with a file whose bytes differ from the reference on purpose; it is compared by value.
var keptDifferences = map[string]string{}

func TestCorpus(t *testing.T) {
	for set, how := range map[string]comparison{
		"nephio-packages":  byValue,
		"kpt-fn-render":    byBytes,
		"catalog-examples": byBytes,
	} {
		for _, c := range corpusCases(t, set) {
			id := set + "/" + c.name
			t.Run(id, func(t *testing.T) {
				problems := checkCase(t, c, how, keptDifferences[id] != "")
				reason, gap := knownGaps[id]
				switch {
				case gap && len(problems) == 0:
					t.Errorf("passes now: take it off the known gaps (%s)", reason)
				case gap:
					t.Skipf("known gap: %s", reason)
				}
				for _, problem := range problems {
					t.Error(problem)
				}
			})
		}
	}
}

// checkCase renders a case and lists what is not as in the reference.
func checkCase(t *testing.T, c corpusCase, how comparison, kptfileByValue bool) []string {
	outcome := render(t, c.in)
	var problems []string
	if failed := outcome.Failure != nil; failed != c.fails {
		problems = append(problems, fmt.Sprintf("failed: %v, want %v (%v)", failed, c.fails, outcome.Failure))
	}
	got, want := maps.Clone(outcome.Files), maps.Clone(c.want)
	if kptfileByValue {
		if a, b := withoutStatus(got["Kptfile"]), withoutStatus(want["Kptfile"]); sameValues("Kptfile", a, b) {
			if a == b {
				problems = append(problems, "the Kptfile is equal now: take it off the kept differences")
			}
			got["Kptfile"], want["Kptfile"] = "", ""
		}
	}
	problems = append(problems, differences(got, want, how)...)
	if outcome.Failure == nil {
		again := render(t, outcome.Files)
		if again.Failure != nil {
			problems = append(problems, fmt.Sprintf("the second render fails: %v", again.Failure))
		}
		problems = append(problems, differences(again.Files, outcome.Files, byBytes)...)
	}
	return problems
}

func TestWithoutStatus(t *testing.T) {
	g := NewWithT(t)
	g.Expect(withoutStatus("a: 1\nstatus:\n  conditions:\n  - type: X\nb: 2\n")).To(Equal("a: 1\nb: 2\n"))
}
