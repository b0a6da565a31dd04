package pipeline_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// starlarkKptfile runs a program that sees each resource r and its annotations a.
func starlarkKptfile(lines ...string) string {
	program := []string{
		"path, index = 'internal.config.kubernetes.io/path', 'internal.config.kubernetes.io/index'",
		"old_path, old_index = 'config.kubernetes.io/path', 'config.kubernetes.io/index'",
		"for r in list(ctx.resource_list['items']):",
		"  a = r['metadata']['annotations']",
		"  name = r['metadata']['name']",
		"  if r['kind'] == 'Kptfile':",
		"    continue",
	}
	for _, line := range lines {
		program = append(program, "  "+line)
	}
	return plainKptfile + "pipeline:\n  mutators:\n  - image: starlark:v0.5\n    configMap:\n      source: |\n        " +
		strings.Join(program, "\n        ") + "\n"
}

func named(name string) string { return strings.Replace(configMap, "name: a", "name: "+name, 1) }

// TestProgramsMoveResourcesByAnnotations checks the annotations that say where resources are, in both spellings.
func TestProgramsMoveResourcesByAnnotations(t *testing.T) {
	in := map[string]string{
		"a.yaml": named("a") + "---\n" + named("b"), "sub/Kptfile": plainKptfile, "sub/c.yaml": named("c"),
	}
	for name, test := range map[string]struct {
		program []string
		// want are the files that differ; empty ones are gone.
		want map[string]string
		says string
	}{
		"both spellings say the same": {
			[]string{"if a[path] != a[old_path] or a[index] != a[old_index]:", "  fail(r)"}, nil, "",
		},
		"a new path moves the file": {
			[]string{"if name == 'b': a[path] = 'x/b.yaml'"}, map[string]string{"a.yaml": named("a"), "x/b.yaml": named("b")}, "",
		},
		"the old spelling does it, too": {
			[]string{"if name == 'b': a[old_path] = 'x/b.yaml'"}, map[string]string{"a.yaml": named("a"), "x/b.yaml": named("b")}, "",
		},
		"of two new paths the new spelling counts": {
			[]string{"if name == 'b':", "  a[path], a[old_path] = 'x.yaml', 'y.yaml'"}, map[string]string{"a.yaml": named("a"), "x.yaml": named("b")}, "",
		},
		"a file that is left empty goes": {
			[]string{"a[path] = name + '.yml'"},
			map[string]string{"a.yaml": "", "a.yml": named("a"), "b.yml": named("b"), "sub/c.yaml": "", "sub/c.yml": named("c")}, "",
		},
		"an index reorders": {
			[]string{"if name == 'a': a[index] = '5'"}, map[string]string{"a.yaml": named("b") + "---\n" + named("a")}, "",
		},
		"the old spelling of an index, as a number": {
			[]string{"if name == 'a': a[old_index] = 5"}, map[string]string{"a.yaml": named("b") + "---\n" + named("a")}, "",
		},
		"annotations that a program removed change nothing": {
			[]string{"r['metadata'].pop('annotations')"}, nil, "",
		},
		"paths are relative to the package that has the resource": {
			[]string{"if name == 'c': a[path] = 'd.yaml'"}, map[string]string{"sub/c.yaml": "", "sub/d.yaml": named("c")}, "",
		},
		"one path for all keeps packages apart": {
			[]string{"a[path] = 'all.yaml'"},
			map[string]string{"a.yaml": "", "all.yaml": named("a") + "---\n" + named("b"), "sub/c.yaml": "", "sub/all.yaml": named("c")}, "",
		},
		"a slash in front is the package's folder": {
			[]string{"a[path] = '/' + a[path] + '.yaml'"},
			map[string]string{"a.yaml": "", "a.yaml.yaml": named("a") + "---\n" + named("b"), "sub/c.yaml": "", "sub/c.yaml.yaml": named("c")}, "",
		},
		"a way out of the sub-package": {
			[]string{"if name == 'c': a[path] = '../c.yaml'"}, nil, `outside of its package`,
		},
		"a way out of the package": {
			[]string{"if name == 'a': a[path] = 'x/../../a.yaml'"}, nil, `outside of its package`,
		},
		"a place that is taken": {
			[]string{"if name == 'b': a[index] = '0'"}, nil, `two resources to "a.yaml", index 0`,
		},
		"a place that is taken, by the old spelling": {
			[]string{"if name == 'b': a[old_index] = '0'"}, nil, `two resources to "a.yaml", index 0`,
		},
		"removed resources": {
			[]string{"if name != 'a': ctx.resource_list['items'].remove(r)"}, map[string]string{"a.yaml": named("a"), "sub/c.yaml": ""}, "",
		},
		"a generated resource": {
			[]string{"if name == 'a': ctx.resource_list['items'].append({'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 's', 'namespace': 'n'}})"},
			map[string]string{"n/secret_s.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: n\n"}, "",
		},
		"a generated resource at the end of a file": {
			[]string{"if name == 'a': ctx.resource_list['items'].append({'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 's', 'annotations': {path: 'sub/c.yaml'}}})"},
			map[string]string{"sub/c.yaml": named("c") + "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n"}, "",
		},
		"a renamed resource stays in its file": {
			[]string{"r['metadata']['name'] = name + '-2'"},
			map[string]string{"a.yaml": named("a-2") + "---\n" + named("b-2"), "sub/c.yaml": named("c-2")}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := maps.Clone(in)
			in["Kptfile"] = starlarkKptfile(test.program...)
			outcome := render(t, in)
			if test.says != "" {
				g.Expect(outcome.Failure).NotTo(BeNil())
				g.Expect(outcome.Failure.Class).To(Equal(pipeline.InvalidOutput))
				g.Expect(outcome.Failure.Message).To(ContainSubstring(test.says))
				g.Expect(outcome.Files).To(Equal(in))
				return
			}
			g.Expect(outcome.Failure).To(BeNil())
			want := maps.Clone(in)
			for file, text := range test.want {
				if want[file] = text; text == "" {
					delete(want, file)
				}
			}
			g.Expect(outcome.Files).To(Equal(want))
		})
	}
}

func TestValidatorsWorkOnCopies(t *testing.T) {
	g := NewWithT(t)
	files := map[string]string{"Kptfile": functionsOf("", "spoil,look"), "a.yaml": named("a"), "b.yaml": named("b")}
	record := &recorder{}
	spoil := func(_ context.Context, list *function.ResourceList) error {
		list.Items[1].Path, list.Items[1].Index = "moved.yaml", 7
		list.Items = list.Items[:2]
		return list.Items[0].Object.PipeE(yaml.SetLabel("new", "label"))
	}
	outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{
		Functions: function.Set{}.With("spoil", spoil).With("look", record.run),
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(record.calls).To(Equal([]string{"Kptfile a.yaml b.yaml"}))
	g.Expect(outcome.Files).To(Equal(files))
}

func TestAFunctionsConfigurationIsAsEarlierFunctionsLeftIt(t *testing.T) {
	config := configMap + "data:\n  a: before\n"
	for name, test := range map[string]struct {
		earlier function.Func
		want    string
	}{
		"as it was": {nothing, "before"},
		"changed": {func(_ context.Context, list *function.ResourceList) error {
			list.Items[1].Object.SetDataMap(map[string]string{"a": "after"})
			return nil
		}, "after"},
		"changed and deleted: as it was before the render": {func(_ context.Context, list *function.ResourceList) error {
			list.Items[1].Object.SetDataMap(map[string]string{"a": "after"})
			list.Items = list.Items[:1]
			return nil
		}, "before"},
		"moved away: as it was before the render": {func(_ context.Context, list *function.ResourceList) error {
			list.Items[1].Path = "moved.yaml"
			return nil
		}, "before"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kptfile := plainKptfile + "pipeline: {mutators: [{image: earlier}, {image: test, configPath: fn/config.yaml}]}\n"
			got := ""
			outcome, err := pipeline.Render(context.Background(), map[string]string{"Kptfile": kptfile, "fn/config.yaml": config},
				pipeline.Options{Functions: function.Set{}.With("earlier", test.earlier).With("test",
					func(_ context.Context, list *function.ResourceList) error {
						got = list.Config.GetDataMap()["a"]
						list.Config.SetDataMap(map[string]string{"a": "not kept"})
						return nil
					})})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(outcome.Failure).To(BeNil())
			g.Expect(got).To(Equal(test.want))
			for _, text := range outcome.Files {
				g.Expect(text).NotTo(ContainSubstring("not kept"))
			}
		})
	}
}

func TestAKptfileThatFunctionsSpoilIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		function function.Func
		says     string
	}{
		"another kind": {func(_ context.Context, list *function.ResourceList) error {
			list.Items[0].Object.SetKind("Other")
			return nil
		}, "Kptfile: kind"},
		"a field that is not there": {func(_ context.Context, list *function.ResourceList) error {
			return list.Items[1].Object.PipeE(yaml.SetField("extra", yaml.NewStringRNode("a")))
		}, "sub/Kptfile: extra"},
		"a second document": {func(_ context.Context, list *function.ResourceList) error {
			list.Items = append(list.Items, &function.Item{Object: yaml.MustParse(plainKptfile), Path: "sub/Kptfile", Index: -1})
			return nil
		}, "sub/Kptfile: the functions leave more than one"},
		"a new one that is none": {func(_ context.Context, list *function.ResourceList) error {
			list.Items = append(list.Items, &function.Item{Object: yaml.MustParse(configMap), Path: "new/Kptfile", Index: -1})
			return nil
		}, "new/Kptfile: kind"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files := map[string]string{"Kptfile": kptfileWith(""), "sub/Kptfile": plainKptfile}
			outcome := renderWith(t, files, test.function, pipeline.Limits{})
			g.Expect(outcome.Failure).NotTo(BeNil())
			g.Expect(outcome.Failure.Class).To(Equal(pipeline.InvalidOutput))
			g.Expect(outcome.Failure.Message).To(ContainSubstring(test.says))
			g.Expect(outcome.Files).To(Equal(files))
		})
	}
}

func TestBreadthFirstAParentMayDeleteASubPackage(t *testing.T) {
	g := NewWithT(t)
	files := map[string]string{
		"Kptfile": functionsOf("drop", "", breadthFirst), "sub/Kptfile": functionsOf("look", ""), "sub/a.yaml": configMap,
	}
	drop := func(_ context.Context, list *function.ResourceList) error {
		list.Items = list.Items[:1]
		return nil
	}
	outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{
		Functions: function.Set{}.With("drop", drop).With("look", nothing),
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(outcome.Files).To(HaveLen(1))
}
