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

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// corpusCase is one package of the corpus with what the reference implementation makes of it.
type corpusCase struct {
	name     string
	in, want map[string]string
	fails    bool
}

// corpusPath is the folder of the corpus, empty when there is none.
func corpusPath() string {
	root := os.Getenv("KILN_CORPUS")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "corpus")
	}
	if _, err := os.Stat(root); err != nil {
		return ""
	}
	return root
}

func corpusRoot(tb testing.TB) string {
	tb.Helper()
	root := corpusPath()
	if root == "" {
		tb.Skip("no corpus: set KILN_CORPUS to its folder")
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

// corpusSetsIfThere is for tests that the corpus makes stronger and that do without.
func corpusSetsIfThere(tb testing.TB) map[string][]corpusCase {
	tb.Helper()
	sets := map[string][]corpusCase{}
	if root := corpusPath(); root != "" {
		for _, set := range []string{"nephio-packages", "kpt-fn-render", "catalog-examples"} {
			sets[set] = corpusCases(tb, set)
		}
	}
	return sets
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

// Why bytes differ from the reference on purpose.
const (
	keepsKptfile = "the reference rewrites the root Kptfile from its own types, which reorders fields, re-indents and drops " +
		"comments; only what functions change is changed here"
	keepsUnchanged = "the reference writes every file anew; a document that no function changed keeps its bytes here"
)

// keptDifferences are the files whose bytes differ from the reference on purpose, by case. They are compared by value.
var keptDifferences = map[string]map[string]string{
	"kpt-fn-render/basicpipeline-semver":                                  {"Kptfile": keepsKptfile},
	"kpt-fn-render/exec-without-permissions":                              {"Kptfile": keepsKptfile},
	"kpt-fn-render/fn-failure":                                            {"Kptfile": keepsKptfile},
	"kpt-fn-render/modify-path-annotation":                                {"Kptfile": keepsKptfile, "starlark-fn.yaml": keepsUnchanged},
	"kpt-fn-render/selectors.basicpipeline":                               {"Kptfile": keepsKptfile},
	"kpt-fn-render/selectors.exclude":                                     {"Kptfile": keepsKptfile},
	"kpt-fn-render/save-on-render-failure.bfs-basicpipeline":              {"Kptfile": keepsKptfile},
	"kpt-fn-render/save-on-render-failure.bfs-multiple-subpkgs-one-fails": {"Kptfile": keepsKptfile},
	"kpt-fn-render/save-on-render-failure.dfs-basicpipeline":              {"Kptfile": keepsKptfile},
	"kpt-fn-render/save-on-render-failure.dfs-deep-nested-middle-fails":   {"Kptfile": keepsKptfile},
	"kpt-fn-render/save-on-render-failure.dfs-parent-validator-fails":     {"Kptfile": keepsKptfile},
	"kpt-fn-render/save-on-render-failure.no-save-on-render-failure":      {"Kptfile": keepsKptfile},
}

// failureSays is what the message of a failing case must have in it: the meaning of the reference's message.
var failureSays = map[string][]string{
	"kpt-fn-render/basicpipeline-v1alpha1":            {"Kptfile", "old version", "v1alpha1"},
	"kpt-fn-render/basicpipeline-v1alpha2":            {"Kptfile", "old version", "v1alpha2"},
	"kpt-fn-render/exec-without-permissions":          {"pipeline.mutators[0].exec"},
	"kpt-fn-render/fn-failure":                        {"httpbin-gen:3:73: got newline, want primary expression"},
	"kpt-fn-render/fnconfig-cannot-refer-subpkgs":     {"pipeline.mutators[0].configPath", "db/labelconfig.yaml", "sub-package"},
	"kpt-fn-render/fnconfig-missing-name":             {"labelconfig.yaml", "metadata.name"},
	"kpt-fn-render/fnconfig-multiple-config-one-file": {"labelconfig.yaml", "more than one"},
	"kpt-fn-render/fnconfig-not-relative":             {"pipeline.mutators[0].configPath", "/some/root/labelconfig.yaml", "relative"},
	"kpt-fn-render/fnconfig-outside-package":          {"pipeline.mutators[1].configPath", "outside of the package"},
	"kpt-fn-render/image-pull-policy-never":           {"pipeline.mutators[0].image", "not-exist"},
	"kpt-fn-render/invalid-kptfile":                   {"Kptfile", "line 3: could not find expected ':'"},
	"kpt-fn-render/kptfile-unknown-fields":            {"line 13", "targetResources"},
	"kpt-fn-render/missing-fnconfig":                  {"pipeline.mutators[1].configPath", "labelconfig1.yaml"},
	"kpt-fn-render/missing-kptfile":                   {"no Kptfile"},
	"kpt-fn-render/multiple-fnconfig":                 {"configMap and configPath exclude each other"},
	"kpt-fn-render/no-fnconfig":                       {"pipeline.mutators[1]", "no functionConfig"},
	"kpt-fn-render/non-krm-resource":                  {"non-krm.yaml", "apiVersion"},
	"kpt-fn-render/path-index-ancestor":               {"../deployment_httpbin.yaml", "outside of its package"},
	"kpt-fn-render/path-index-duplicate":              {"resources.yaml", "index 0"},
	"kpt-fn-render/subpkg-fn-failure":                 {"statefulset-filter:4:42: got newline, want primary expression"},
	"kpt-fn-render/subpkg-has-invalid-kptfile":        {"db/Kptfile", "line 10: mapping values are not allowed in this context"},
	"nephio-packages/pkg-example-ric":                 {`unable to find field "spec.configRefs.[kind=Config].namespace"`},
}

func TestCorpus(t *testing.T) {
	for set, how := range map[string]comparison{
		"nephio-packages":  byValue,
		"kpt-fn-render":    byBytes,
		"catalog-examples": byBytes,
	} {
		for _, c := range corpusCases(t, set) {
			id := set + "/" + c.name
			t.Run(id, func(t *testing.T) {
				problems := checkCase(t, id, c, how)
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
func checkCase(t *testing.T, id string, c corpusCase, how comparison) []string {
	outcome := render(t, c.in)
	var problems []string
	if failed := outcome.Failure != nil; failed != c.fails {
		problems = append(problems, fmt.Sprintf("failed: %v, want %v (%v)", failed, c.fails, outcome.Failure))
	}
	for _, words := range failureSays[id] {
		if outcome.Failure != nil && !strings.Contains(outcome.Failure.Message, words) {
			problems = append(problems, fmt.Sprintf("the message %q does not say %q", outcome.Failure.Message, words))
		}
	}
	if _, expected := failureSays[id]; c.fails && !expected && !strings.Contains(id, "save-on-render-failure") {
		problems = append(problems, "say in failureSays what the message must tell")
	}
	got, want := maps.Clone(outcome.Files), maps.Clone(c.want)
	for file := range keptDifferences[id] {
		a, b := withoutStatus(got[file]), withoutStatus(want[file])
		switch {
		case a == b:
			problems = append(problems, file+" is equal now: take it off the kept differences")
		case sameValues(file, a, b):
			delete(got, file)
			delete(want, file)
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

func TestTheStatusIsCutOutOfAKptfile(t *testing.T) {
	g := NewWithT(t)
	g.Expect(withoutStatus("a: 1\nstatus:\n  conditions:\n  - type: X\nb: 2\n")).To(Equal("a: 1\nb: 2\n"))
	g.Expect(withoutStatus("status:\n- type: X\n# a comment\nb: 2\n")).To(Equal("b: 2\n"))
}
