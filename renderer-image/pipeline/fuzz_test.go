package pipeline_test

import (
	"cmp"
	"context"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// FuzzRender renders arbitrary trees of a Kptfile and three more files. It must not panic, hang or touch its input, must give
// the same outcome again, and must write only paths inside the package.
func FuzzRender(f *testing.F) {
	for _, name := range packageNames(f) {
		files := readTree(f, filepath.Join("testdata", "packages", name, "in"))
		kptfile := files["Kptfile"]
		delete(files, "Kptfile")
		names := append(slices.Sorted(maps.Keys(files)), "a.yaml", "b.yaml", "c.yaml")
		// Seeds of three neighbours each, so that the configurations of functions meet resources.
		for i := 0; i+2 < len(names); i++ {
			f.Add(kptfile, names[i], files[names[i]], names[i+1], files[names[i+1]], names[i+2], files[names[i+2]])
		}
	}
	f.Add(plainKptfile, "a.yaml", "a: &a [*a]", "a.json", `{"a": [1, "`, "sub/Kptfile", "%YAML 1.2\n---\n"+plainKptfile)
	f.Add(plainKptfile, ".krmignore", "*\n!a.yaml\n[", "a.yaml", "--- |\n a\n--- !!binary x\n", "b.yml", "a: !!set {b}\n? c\n")
	f.Add(starlarkKptfile("a[path] = a[old_path] + '.yml'", "a[index] = 3"), "a.yaml", configMap+"---\r\n"+configMap, "s/Kptfile", plainKptfile, "s/b.yaml", configMap)
	f.Add(starlarkKptfile("a[path] = '../' + name"), "s/.krmignore", "b.yaml\nKptfile", "s/Kptfile", plainKptfile, "s/b.yaml", "a: [")
	f.Add(functionsOf("set-labels:v1", "starlark", breadthFirst, saved), "kustomization.yaml", "- a", "a.yaml", "a: &a {b: &b [*c]}", "a/Kptfile", "a: b")
	f.Add(plainKptfile+"pipeline: {mutators: [{image: a@b:c/d, tag: '>=1 <'}, {exec: a}]}\nstatus: &a [*a]\n", "a/b", "", "a", "", "b.yaml", "\ufeff"+configMap)
	f.Fuzz(func(t *testing.T, kptfile, name1, content1, name2, content2, name3, content3 string) {
		g := NewWithT(t)
		files := map[string]string{name1: content1, name2: content2, name3: content3, "Kptfile": kptfile}
		before := maps.Clone(files)
		options := pipeline.Options{
			Functions: function.Builtins(),
			Limits:    pipeline.Limits{MaxStarlarkSteps: 100_000, MaxBytes: 1 << 20, MaxResources: 1000},
		}
		outcome, err := pipeline.Render(context.Background(), files, options)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files).To(Equal(before))
		for name, content := range files {
			if !slices.Contains([]string{"Kptfile", ".yaml", ".yml", ".json"}, cmp.Or(path.Ext(name), path.Base(name))) {
				g.Expect(outcome.Files).To(HaveKeyWithValue(name, content), "no resource file")
			}
		}
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
