package pipeline_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

func TestATagTakesThePlaceOfTheImagesOwn(t *testing.T) {
	for name, test := range map[string]struct{ image, tag, runs string }{
		"no tag":                        {"set-labels:v0.1", "", "set-labels:v0.1"},
		"a version":                     {"set-labels", "v0.2.0", "set-labels:v0.2.0"},
		"a version, and an image's tag": {"gcr.io/kpt-fn/set-labels:v0.1", "0.2", "gcr.io/kpt-fn/set-labels:0.2"},
		"a version, and a digest": {
			"set-labels@sha256:0000000000000000000000000000000000000000000000000000000000000000", "v1", "set-labels:v1",
		},
		"a word":                        {"set-labels", "latest", "set-labels:latest"},
		"a tilde range":                 {"set-labels:v9", "~0.2", "set-labels:~0.2"},
		"a caret range":                 {"set-labels", "^0.2.1", "set-labels:^0.2.1"},
		"a range of two bounds":         {"set-labels", ">=0.1, <0.4", "set-labels:>=0.1, <0.4"},
		"a range with a hyphen":         {"set-labels", "0.1 - 0.3", "set-labels:0.1 - 0.3"},
		"either of two ranges":          {"set-labels", "~0.1 || ~0.3", "set-labels:~0.1 || ~0.3"},
		"any version":                   {"set-labels", "*", "set-labels:*"},
		"a version with an x":           {"ghcr.io/kptdev/krm-functions-catalog/set-labels", "v0.x", "ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.x"},
		"an image of another registry":  {"localhost:5000/fn:v1", "v2", "localhost:5000/fn:v2"},
		"a registry's port is no tag":   {"localhost:5000/fn", "v2", "localhost:5000/fn:v2"},
		"a version before its release":  {"set-labels", "1.0.0-rc.1", "set-labels:1.0.0-rc.1"},
		"a version with build metadata": {"set-labels", "1.0.0_build", "set-labels:1.0.0_build"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kptfile := plainKptfile + "pipeline:\n  mutators:\n  - image: " + test.image + "\n    configMap: {a: b}\n"
			if test.tag != "" {
				kptfile += "    tag: '" + test.tag + "'\n"
			}
			outcome := render(t, map[string]string{"Kptfile": kptfile, "a.yaml": configMap})
			g.Expect(outcome.Steps).To(HaveLen(1))
			g.Expect(outcome.Steps[0].Image).To(Equal(test.runs))
			if test.image[:9] == "localhost" {
				g.Expect(outcome.Failure.Class).To(Equal(pipeline.FunctionNotFound))
				g.Expect(outcome.Failure.Message).To(ContainSubstring(`"` + test.runs + `"`))
				return
			}
			g.Expect(outcome.Failure).To(BeNil())
		})
	}
}

func TestMistakesInAKptfileAreExplained(t *testing.T) {
	function := func(fields string) string { return "pipeline: {mutators: [{image: test, " + fields + "}]}\n" }
	for name, test := range map[string]struct {
		fields string
		says   []string
	}{
		"a range that is none":            {function("tag: '>= one'"), []string{"pipeline.mutators[0].tag", `">= one"`, "range of versions"}},
		"a tag with a slash":              {function("tag: a/b"), []string{"pipeline.mutators[0].tag"}},
		"a tag that is a list":            {function("tag: [a]"), []string{"pipeline.mutators[0].tag", "string"}},
		"a tag without an image":          {"pipeline: {mutators: [{exec: a, tag: v1}]}\n", []string{"pipeline.mutators[0].tag", "set image"}},
		"a field at the top":              {"pipelines: {}\n", []string{"Kptfile: pipelines: line 5", "pipeline, status"}},
		"a field of metadata":             {"info: {descr: a}\n", []string{"info.descr", "description"}},
		"a field of upstream":             {"upstream: {git: {branch: main}}\n", []string{"upstream.git.branch", "ref"}},
		"a field of a list's element":     {"info: {readinessGates: [{type: a}]}\n", []string{"info.readinessGates[0].type", "conditionType"}},
		"a field of the pipeline":         {"pipeline: {generators: []}\n", []string{"pipeline.generators", "mutators, validators"}},
		"a field of a validator":          {"pipeline: {validators: [{image: test, config: a}]}\n", []string{"pipeline.validators[0].config:"}},
		"a field of an exclusion":         {function("exclude: [{label: {a: b}}]"), []string{"exclude[0].label", "labels"}},
		"a field of a newer kpt":          {function("when: 'true'"), []string{"pipeline.mutators[0].when", "newer versions of kpt", "selectors"}},
		"another field of a newer kpt":    {function("configRef: {kind: A, name: a}"), []string{"configRef", "configPath"}},
		"a field twice":                   {"pipeline: {}\npipeline: {}\n", []string{"pipeline", "line 6", "twice"}},
		"a field of a configMap twice":    {function("configMap: {a: b, a: c}"), []string{"configMap.a", "twice"}},
		"selectors that are a mapping":    {function("selectors: {kind: a}"), []string{"pipeline.mutators[0].selectors", "list"}},
		"labels of a selector in a list":  {function("selectors: [{labels: [a]}]"), []string{"selectors[0].labels", "mapping"}},
		"a label that is a mapping":       {function("selectors: [{labels: {a: {}}}]"), []string{"selectors[0].labels.a", "string"}},
		"a configPath that leads out":     {function("configPath: a/../../b.yaml"), []string{"configPath", "outside of the package"}},
		"a configPath from the root":      {function("configPath: /etc/passwd"), []string{"configPath", "relative"}},
		"a configPath to nothing":         {function("configPath: fn.yaml"), []string{"configPath", `no resource file "fn.yaml"`}},
		"a configPath to an ignored file": {function("configPath: ignored.yaml"), []string{"configPath", `no resource file "ignored.yaml"`}},
		"a configPath to another text":    {function("configPath: notes.txt"), []string{"configPath", `no resource file "notes.txt"`}},
		"mutators that are a mapping":     {"pipeline: {mutators: {image: a}}\n", []string{"pipeline.mutators", "list"}},
		"a mutator that is null":          {"pipeline: {mutators: [null]}\n", []string{"pipeline.mutators[0]", "mapping"}},
		"a pipeline that is a list":       {"pipeline: []\n", []string{"pipeline", "mapping"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			outcome := renderWith(t, map[string]string{
				"Kptfile": plainKptfile + test.fields, "notes.txt": "a", ".krmignore": "ignored.yaml", "ignored.yaml": configMap,
			}, nothing, pipeline.Limits{})
			g.Expect(outcome.Failure).NotTo(BeNil())
			g.Expect(outcome.Failure.Class).To(Equal(pipeline.InvalidPackage))
			for _, words := range test.says {
				g.Expect(outcome.Failure.Message).To(ContainSubstring(words))
			}
		})
	}
}

func TestWhatAKptfileMayHaveIsAccepted(t *testing.T) {
	for name, fields := range map[string]string{
		"every field of every section": "upstream: {type: git, updateStrategy: resource-merge, git: {repo: a, directory: b, ref: c}}\n" +
			"upstreamLock: {type: git, git: {repo: a, directory: b, ref: c, commit: d}}\n" +
			"info: {site: a, emails: [b], license: c, licenseFile: d, description: e, keywords: [f], man: g, readinessGates: [{conditionType: h}]}\n" +
			"inventory: {namespace: a, name: b, inventoryID: c, labels: {d: e}, annotations: {f: g}}\n",
		"whatever tools write into the status":   "status: {conditions: [{type: a, since: b}], renderStatus: {mutationSteps: [{image: c, exitCode: 0}]}, d: {}}\n",
		"empty sections":                         "info: {}\npipeline:\nupstream: null\n",
		"empty lists":                            "pipeline: {mutators: [], validators: null}\n",
		"aliases":                                "pipeline: {mutators: [&a {image: test}, *a]}\n",
		"a configPath beside an empty configMap": "pipeline: {mutators: [{image: test, configMap: {}, configPath: ./a.yaml}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			outcome := renderWith(t, map[string]string{"Kptfile": plainKptfile + fields, "a.yaml": configMap}, nothing, pipeline.Limits{})
			NewWithT(t).Expect(outcome.Failure).To(BeNil())
		})
	}
}

func TestOldSchemasAreRefusedWithTheWayOut(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1alpha2"} {
		for _, file := range []string{"Kptfile", "sub/Kptfile"} {
			t.Run(version+" in "+file, func(t *testing.T) {
				g := NewWithT(t)
				files := map[string]string{"Kptfile": plainKptfile}
				files[file] = "apiVersion: kpt.dev/" + version + "\nkind: Kptfile\nmetadata:\n  name: old\nopenAPI: {}\n"
				outcome := render(t, files)
				g.Expect(outcome.Failure).NotTo(BeNil())
				g.Expect(outcome.Failure.Message).To(HavePrefix(file + ": apiVersion: "))
				g.Expect(outcome.Failure.Message).To(And(ContainSubstring("old version"), ContainSubstring("migrate"), ContainSubstring("fix")))
			})
		}
	}
}

func TestAConfigMapsValuesAreStrings(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]string{}
	outcome := renderWith(t, map[string]string{
		"Kptfile": kptfileWith("      configMap: {a: 3, b: true, c: null, d: 1e3, e: , f: 'x', g: 2024-01-01}\n"),
	}, func(_ context.Context, list *function.ResourceList) error {
		g.Expect(list.Config.GetKind()).To(Equal("ConfigMap"))
		g.Expect(list.Config.GetName()).To(Equal("function-input"))
		for key, node := range list.Config.GetDataMap() {
			seen[key] = node
		}
		g.Expect(list.Config.MustString()).To(ContainSubstring(`a: "3"`))
		return nil
	}, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(seen).To(Equal(map[string]string{"a": "3", "b": "true", "c": "", "d": "1e3", "e": "", "f": "x", "g": "2024-01-01"}))
}
