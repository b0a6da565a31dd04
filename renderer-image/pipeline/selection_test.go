package pipeline_test

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

func TestSelectorsChooseResources(t *testing.T) {
	files := map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: one\n  labels: {app: x, tier: db}\n",
		"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n  labels: {app: x}\n  annotations: {note: 'yes'}\n",
		"c.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: c\n  namespace: one\n",
		"d.yaml": "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata:\n  name: d\n",
	}
	for name, test := range map[string]struct{ fields, selected string }{
		"all without selectors":                {"", "Kptfile a b c d"},
		"a kind":                               {"selectors: [{kind: ConfigMap}]", "a b"},
		"an apiVersion":                        {"selectors: [{apiVersion: apps/v1}]", "c"},
		"a name":                               {"selectors: [{name: d}]", "d"},
		"a namespace":                          {"selectors: [{namespace: one}]", "a c"},
		"no namespace is not default":          {"selectors: [{namespace: default}]", ""},
		"labels, all of them":                  {"selectors: [{labels: {app: x, tier: db}}]", "a"},
		"annotations":                          {"selectors: [{annotations: {note: 'yes'}}]", "b"},
		"all that one selector names":          {"selectors: [{kind: ConfigMap, namespace: one}]", "a"},
		"what any of the selectors names":      {"selectors: [{kind: ConfigMap, namespace: one}, {name: d}, {name: a}]", "a d"},
		"an empty selector chooses all":        {"selectors: [{}, {name: d}]", "Kptfile a b c d"},
		"an empty list chooses all":            {"selectors: []", "Kptfile a b c d"},
		"a selector that nothing meets":        {"selectors: [{kind: configmap}]", ""},
		"an exclusion":                         {"exclude: [{kind: ConfigMap}]", "Kptfile c d"},
		"all that one exclusion names":         {"exclude: [{kind: ConfigMap, labels: {tier: db}}]", "Kptfile b c d"},
		"what any of the exclusions names":     {"exclude: [{kind: Kptfile}, {name: c}, {labels: {app: x}}]", "d"},
		"an empty exclusion excludes nothing":  {"exclude: [{}]", "Kptfile a b c d"},
		"exclusions count more than selectors": {"selectors: [{kind: ConfigMap}, {kind: Deployment}]\n      exclude: [{name: a}, {name: d}]", "b c"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files := files
			files["Kptfile"] = kptfileWith("      " + test.fields + "\n")
			record := &recorder{}
			outcome := renderWith(t, files, record.run, pipeline.Limits{})
			g.Expect(outcome.Failure).To(BeNil())
			g.Expect(strings.ReplaceAll(record.calls[0], ".yaml", "")).To(Equal(test.selected))
		})
	}
}

func TestWhatIsNotSelectedStaysInItsPlace(t *testing.T) {
	g := NewWithT(t)
	secret := strings.Replace(configMap, "ConfigMap", "Secret", 1)
	files := map[string]string{
		"Kptfile": kptfileWith("      selectors: [{kind: ConfigMap}]\n"), "a.yaml": secret + "---\n" + configMap + "---\n" + secret,
	}
	outcome := renderWith(t, files, func(_ context.Context, list *function.ResourceList) error {
		list.Items = nil
		return nil
	}, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(outcome.Files).To(HaveKeyWithValue("a.yaml", secret+"---\n"+secret))
}

func TestWhichFilesAreResources(t *testing.T) {
	g := NewWithT(t)
	garbage := "a: [\x00"
	files := map[string]string{
		"Kptfile": kptfileWith(""), "a.yaml": configMap, "b.yml": configMap, "c.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`,
		"d.YAML": garbage, "e.yaml.txt": garbage, "f.jsonl": garbage, "README.md": garbage, "Kptfile.bak": garbage, "kptfile": garbage,
		"yaml": garbage, ".hidden.yaml": configMap, "g.yaml": "# only a comment\n", "h.yaml": "", "i.yaml": "---\n---\n", "j.yaml": "null\n",
	}
	record := &recorder{}
	outcome := renderWith(t, files, record.run, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(record.calls).To(Equal([]string{".hidden.yaml Kptfile a.yaml b.yml c.json"}))
	g.Expect(outcome.Files).To(Equal(files))
}

func TestWhatMustBeAResource(t *testing.T) {
	kustomization := "resources:\n- a.yaml\n"
	for name, test := range map[string]struct {
		fields, file, text string
		lacks              string
	}{
		"a mapping of something else":                   {"", "a.yaml", "a: b\n", "apiVersion"},
		"a list":                                        {"", "a.yaml", "- a\n", "apiVersion"},
		"a text":                                        {"", "a.yaml", "a\n", "apiVersion"},
		"no kind":                                       {"", "a.yaml", "apiVersion: v1\nmetadata:\n  name: a\n", "kind"},
		"no name":                                       {"", "a.yaml", "apiVersion: v1\nkind: A\nmetadata: {}\n", "metadata.name"},
		"an empty name":                                 {"", "a.yaml", "apiVersion: v1\nkind: A\nmetadata: {name: ''}\n", "metadata.name"},
		"no name, and not selected":                     {"      selectors: [{kind: B}]\n", "a.yaml", "apiVersion: v1\nkind: A\n", ""},
		"no name, and excluded":                         {"      exclude: [{kind: A}]\n", "a.yaml", "apiVersion: v1\nkind: A\n", ""},
		"a kustomization by its file":                   {"", "b/kustomization.yaml", kustomization, ""},
		"a kustomization by its other file":             {"", "kustomization.yml", kustomization, ""},
		"a kustomization by its group":                  {"", "a.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n", ""},
		"a kustomization by its kind":                   {"", "a.yaml", "kind: Kustomization\n", ""},
		"the kind Kustomization of another group":       {"", "a.yaml", "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n", "metadata.name"},
		"a file that only begins as kustomization does": {"", "kustomization.yaml.yaml", kustomization, "apiVersion"},
	} {
		for _, pipelines := range []string{"with a pipeline", "without one"} {
			t.Run(name+", "+pipelines, func(t *testing.T) {
				g := NewWithT(t)
				files := map[string]string{"Kptfile": kptfileWith(test.fields), test.file: test.text}
				if pipelines == "without one" {
					if test.fields != "" {
						t.Skip("there is nothing to select")
					}
					files["Kptfile"] = plainKptfile
				}
				outcome := renderWith(t, files, nothing, pipeline.Limits{})
				if test.lacks == "" {
					g.Expect(outcome.Failure).To(BeNil())
					return
				}
				g.Expect(outcome.Failure).NotTo(BeNil())
				g.Expect(outcome.Failure.Class).To(Equal(pipeline.InvalidPackage))
				g.Expect(outcome.Failure.Message).To(HavePrefix(test.file + ": " + test.lacks + ": "))
			})
		}
	}
}

func TestKustomizationsAreGivenToFunctions(t *testing.T) {
	g := NewWithT(t)
	outcome := render(t, map[string]string{
		"Kptfile":            plainKptfile + "pipeline:\n  mutators:\n  - image: set-labels:v0.2\n    configMap: {a: b}\n  - image: set-namespace:v0.4\n    configMap: {namespace: n}\n",
		"kustomization.yaml": "# of kustomize\nresources:\n- a.yaml\n",
	})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(outcome.Files).To(HaveKeyWithValue("kustomization.yaml", "# of kustomize\nresources:\n- a.yaml\nmetadata:\n  labels:\n    a: b\n"))
}

func TestIgnoredFilesAreNotGivenToFunctions(t *testing.T) {
	g := NewWithT(t)
	files := map[string]string{
		"Kptfile":    kptfileWith(""),
		".krmignore": "bad.yaml\n/top.yaml\nfolder/\nKptfile\n",
		"bad.yaml":   "a: [", "top.yaml": "a: [", "folder/deep/a.yaml": "a: [", "a/top.yaml": configMap, "b.yaml": configMap,
		"sub/Kptfile": plainKptfile, "sub/bad.yaml": configMap, "folder/pkg/Kptfile": plainKptfile, "folder/pkg/a.yaml": configMap,
		"sub/a/.krmignore": "a.yaml\n", "sub/a/a.yaml": configMap,
	}
	record := &recorder{}
	outcome := renderWith(t, files, record.run, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(record.calls).To(Equal([]string{
		// The root Kptfile is ignored, its pipeline is not. Sub-packages have rules of their own, in their top folder only.
		"a/top.yaml b.yaml folder/pkg/Kptfile folder/pkg/a.yaml sub/Kptfile sub/a/a.yaml sub/bad.yaml",
	}))
	g.Expect(outcome.Files).To(Equal(files))
}
