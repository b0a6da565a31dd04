package pipeline_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// generated is a package of a random shape, the same for the same seed: nested packages, documents in many styles, pipelines
// of the built-in functions.
func generated(seed uint64) map[string]string {
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	files := map[string]string{}
	dirs := []string{""}
	for range random.IntN(4) {
		dirs = append(dirs, pick(dirs...)+pick("a/", "b/", "a-b/", "deep/er/"))
	}
	for _, dir := range dirs {
		files[dir+"Kptfile"] = generatedKptfile(random, pick)
		files[dir+"setters.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: setters\ndata:\n  name: web\n  count: \"2\"\n"
		for i := range random.IntN(4) {
			file := dir + pick("", "x/", "y/") + fmt.Sprintf("f%d", i) + pick(".yaml", ".yml", ".yaml")
			var documents []string
			for range 1 + random.IntN(3) {
				documents = append(documents, generatedResource(random, pick))
			}
			files[file] = pick("", "# head\n", "---\n", "# head\n\n---\n") + strings.Join(documents, pick("---\n", "--- # next\n", "---\n# c\n---\n"))
			if random.IntN(5) == 0 {
				files[file] = strings.ReplaceAll(files[file], "\n", "\r\n")
			}
		}
		if random.IntN(3) == 0 {
			files[dir+"g.json"] = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "json"}, "data": {"a": "<b>"}}`
		}
		if random.IntN(3) == 0 {
			files[dir+".krmignore"] = "ignored.yaml\n"
			files[dir+"ignored.yaml"] = "a: ["
		}
	}
	return files
}

func generatedKptfile(random *rand.Rand, pick func(...string) string) string {
	kptfile := "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: test # the name\npipeline:\n  mutators:\n"
	for range 1 + random.IntN(4) {
		kptfile += "  - image: " + pick(
			"set-labels:v0.2.0\n    configMap: {app: web, \"on\": 'yes'}\n",
			"set-namespace:v0.4.1\n    configMap:\n      namespace: shop\n",
			"set-annotations:v0.1.4\n    configMap: {note: \"1\"}\n    exclude: [{kind: Kptfile}]\n",
			"apply-setters:v0.2.0\n    configPath: setters.yaml\n",
			"set-image:v0.1.1\n    configMap: {name: nginx, newTag: v2}\n    selectors: [{kind: Deployment}, {kind: Pod}]\n",
			"search-replace:v0.2\n    configMap: {by-path: data.a, put-value: c}\n    exclude: [{kind: Kptfile}]\n",
			"starlark:v0.5\n    configMap:\n      source: |\n        for r in ctx.resource_list['items']:\n          r['metadata'].setdefault('labels', {})['star'] = 'lark'\n",
		)
	}
	return kptfile
}

func generatedResource(random *rand.Rand, pick func(...string) string) string {
	resource := pick(
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a # kpt-set: ${name}\ndata:\n  a: b # the letter\n  c: |\n    two\n\n    lines\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {app: old}}\nspec:\n  replicas: 1 # kpt-set: ${count}\n"+
			"  template:\n    spec:\n      containers:\n      # the only one\n      - name: web\n        image: nginx:v1\n",
		"kind:   Service\napiVersion: v1\nmetadata:\n    name: 'web'\n    namespace: \"old\"\n    annotations:\n        x: 'y'\nspec:\n    selector: &s\n        app: web\n    copy: *s\n",
		"apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: thing\n# about the list\nlist:\n  - a\n  - - b\n  - {c: d}\nempty: {}\nnothing: null\ntext: >-\n  folded\n  text\n",
	)
	if random.IntN(4) == 0 {
		resource += "# foot\n"
	}
	return resource
}

// packagesOfAllKinds are the packages of testdata and of the corpus, and generated ones.
func packagesOfAllKinds(t *testing.T) map[string]map[string]string {
	packages := map[string]map[string]string{}
	for _, name := range packageNames(t) {
		packages[name] = readTree(t, filepath.Join("testdata", "packages", name, "in"))
	}
	for seed := range uint64(300) {
		packages[fmt.Sprintf("generated %d", seed)] = generated(seed)
	}
	for set, cases := range corpusSetsIfThere(t) {
		for _, c := range cases {
			packages[set+"/"+c.name] = c.in
		}
	}
	return packages
}

func TestRenderingWhatIsRenderedChangesNoByte(t *testing.T) {
	succeeded, changed := 0, 0
	for name, files := range packagesOfAllKinds(t) {
		once := render(t, files)
		if once.Failure != nil {
			NewWithT(t).Expect(name).NotTo(HavePrefix("generated"), once.Failure.Message)
			continue
		}
		succeeded++
		if !maps.Equal(once.Files, files) {
			changed++
		}
		twice := render(t, once.Files)
		if twice.Failure != nil {
			t.Errorf("%s: the second render fails: %v", name, twice.Failure)
		}
		for _, difference := range byteDifferences(twice.Files, once.Files) {
			t.Errorf("%s: %s", name, difference)
		}
	}
	NewWithT(t).Expect(changed).To(BeNumerically(">", succeeded*3/4), "packages that a render does not change show little")
}

// byteDifferences does not spare the Kptfile's status, as differences does.
func byteDifferences(got, want map[string]string) []string {
	var found []string
	for _, file := range slices.Sorted(maps.Keys(want)) {
		if text, exists := got[file]; !exists || text != want[file] {
			found = append(found, fmt.Sprintf("%s differs:\n%s\n--- want\n%s", file, text, want[file]))
		}
	}
	if len(got) > len(want) {
		found = append(found, "there are files too many")
	}
	return found
}

// TestASubPackageRendersAsItDoesAlone puts packages below an empty parent. What only a root Kptfile can ask for is left out.
func TestASubPackageRendersAsItDoesAlone(t *testing.T) {
	for name, files := range packagesOfAllKinds(t) {
		if kptfile := files["Kptfile"]; strings.Contains(kptfile, pipeline.BreadthFirstAnnotation) || strings.Contains(kptfile, pipeline.SaveOnFailureAnnotation) {
			continue
		}
		below := map[string]string{"Kptfile": plainKptfile}
		for file, text := range files {
			below["deep/sub/"+file] = text
		}
		alone, nested := render(t, files), render(t, below)
		if files["Kptfile"] != "" && (alone.Failure == nil) != (nested.Failure == nil) {
			t.Errorf("%s: alone %v, nested %v", name, alone.Failure, nested.Failure)
			continue
		}
		want := map[string]string{"Kptfile": plainKptfile}
		for file, text := range alone.Files {
			want["deep/sub/"+file] = text
		}
		for _, difference := range byteDifferences(nested.Files, want) {
			t.Errorf("%s: %s", name, difference)
		}
		if files["Kptfile"] != "" {
			NewWithT(t).Expect(nested.Steps).To(HaveLen(len(alone.Steps)), name)
		}
	}
}

// TestTheOrderOfFilesDoesNotMatter renders the same files from maps that were filled in other orders.
func TestTheOrderOfFilesDoesNotMatter(t *testing.T) {
	for name, files := range packagesOfAllKinds(t) {
		g := NewWithT(t)
		want := render(t, files)
		names := slices.Sorted(maps.Keys(files))
		for range 3 {
			rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			shuffled := map[string]string{}
			for _, name := range names {
				shuffled[name] = files[name]
			}
			got := render(t, shuffled)
			g.Expect(got.Files).To(Equal(want.Files), name)
			g.Expect(describeOutcome(got)).To(Equal(describeOutcome(want)), name)
		}
	}
}
