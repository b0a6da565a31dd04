package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// functionsOf is a Kptfile with mutators, validators and annotations, given as comma-separated names.
func functionsOf(mutators, validators string, annotations ...string) string {
	kptfile := "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: test\n"
	if len(annotations) > 0 {
		kptfile += "  annotations:\n"
	}
	for _, annotation := range annotations {
		kptfile += "    " + annotation + "\n"
	}
	kptfile += "pipeline:\n"
	for _, list := range []struct{ name, functions string }{{"mutators", mutators}, {"validators", validators}} {
		kptfile += "  " + list.name + ":\n"
		for name := range strings.SplitSeq(list.functions, ",") {
			switch {
			case name == "exec":
				kptfile += "  - exec: /bin/true\n"
			case name != "":
				kptfile += "  - image: " + name + "\n    configMap: {by: " + name + "}\n"
			}
		}
	}
	return kptfile
}

const (
	breadthFirst = `kpt.dev/bfs-rendering: "true"`
	saved        = `kpt.dev/save-on-render-failure: "true"`
)

// recorder is a function that writes down the paths of its items.
type recorder struct{ calls []string }

func (r *recorder) run(_ context.Context, list *function.ResourceList) error {
	var paths []string
	for _, item := range list.Items {
		paths = append(paths, item.Path)
	}
	r.calls = append(r.calls, strings.Join(paths, " "))
	return nil
}

func TestTheOrderOfPackagesAndResources(t *testing.T) {
	kptfile := functionsOf("record", "")
	files := map[string]string{
		"z.yaml": configMap, "a.yaml": configMap, "c/a.yaml": configMap, "c-d.yaml": configMap,
		"b/Kptfile": kptfile, "b/z/deep/Kptfile": kptfile, "b/z/deep/a.yaml": configMap, "b/y.yaml": configMap,
		"b-c/Kptfile": kptfile, "b/c/Kptfile": plainKptfile, "b/c/d/Kptfile": kptfile,
	}
	const (
		d      = "Kptfile"
		deep   = "Kptfile a.yaml"
		b      = "Kptfile y.yaml c/Kptfile c/d/Kptfile z/deep/Kptfile z/deep/a.yaml"
		bc     = "Kptfile"
		root   = "Kptfile a.yaml c/a.yaml c-d.yaml z.yaml b/Kptfile b/y.yaml b/c/Kptfile b/c/d/Kptfile b/z/deep/Kptfile b/z/deep/a.yaml b-c/Kptfile"
		inBFS  = `kpt.dev/bfs-rendering: "True"`
		notBFS = `kpt.dev/bfs-rendering: "yes"`
	)
	for name, test := range map[string]struct {
		annotations []string
		packages    []string
		calls       []string
	}{
		"depth first, siblings by name": {
			nil, []string{"b/c/d", "b/z/deep", "b", "b-c", "."}, []string{d, deep, b, bc, root},
		},
		"breadth first, level by level": {
			[]string{inBFS}, []string{".", "b", "b-c", "b/z/deep", "b/c/d"}, []string{root, b, bc, deep, d},
		},
		"depth first when the annotation says something else": {
			[]string{notBFS}, []string{"b/c/d", "b/z/deep", "b", "b-c", "."}, []string{d, deep, b, bc, root},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files := maps.Clone(files)
			files["Kptfile"] = functionsOf("record", "", test.annotations...)
			record := &recorder{}
			outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{Functions: function.Set{}.With("record", record.run)})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(outcome.Failure).To(BeNil())
			g.Expect(record.calls).To(Equal(test.calls))
			var packages []string
			for _, step := range outcome.Steps {
				packages = append(packages, step.Package)
			}
			g.Expect(packages).To(Equal(test.packages))
		})
	}
}

// TestWhatIsLeftWhenARenderFails gives every package mutators that write their names into all resources, and functions that
// fail.
func TestWhatIsLeftWhenARenderFails(t *testing.T) {
	// mark appends the function's name to what the resource's data says.
	mark := func(_ context.Context, list *function.ResourceList) error {
		for _, item := range list.Items {
			if item.Object.GetKind() != "ConfigMap" {
				continue
			}
			data := item.Object.GetDataMap()
			data["by"] += list.Config.GetDataMap()["by"]
			item.Object.SetDataMap(data)
		}
		return nil
	}
	fail := func(ctx context.Context, list *function.ResourceList) error {
		_ = mark(ctx, list) // What a failing function did is thrown away.
		list.Items[0].Path = "moved.yaml"
		return fmt.Errorf("on purpose")
	}
	functions := function.Set{}.With("a", mark).With("b", mark).With("c", mark).With("fail", fail)
	resource := func(by string) string { return configMap + "data:\n  by: " + by + "\n" }
	for name, test := range map[string]struct {
		// root, sub and last are the pipelines of the root, of its sub-package and of the sub-package that comes last.
		root, sub, last string
		// wantRoot, wantSub and wantLast are what wrote into their resources.
		wantRoot, wantSub, wantLast string
	}{
		"nothing without the annotation":                       {functionsOf("a", "fail"), functionsOf("b", ""), plainKptfile, "_", "_", "_"},
		"a mutator of the root fails":                          {functionsOf("a,fail,a", "", saved), functionsOf("b", ""), functionsOf("c", ""), "_a", "_ba", "_ca"},
		"a mutator of the root fails, breadth first":           {functionsOf("a,fail,a", "", saved, breadthFirst), functionsOf("b", ""), functionsOf("c", ""), "_a", "_a", "_a"},
		"a validator of the root fails":                        {functionsOf("a", "fail", saved), functionsOf("b", ""), functionsOf("c", ""), "_a", "_ba", "_ca"},
		"a validator of the root fails, breadth first":         {functionsOf("a", "fail", saved, breadthFirst), functionsOf("b", ""), functionsOf("c", ""), "_a", "_a", "_a"},
		"a mutator of a sub-package fails":                     {functionsOf("a", "", saved), functionsOf("b,fail", ""), functionsOf("c", ""), "_", "_b", "_"},
		"a mutator of a sub-package fails, breadth first":      {functionsOf("a", "", saved, breadthFirst), functionsOf("b,fail", ""), functionsOf("c", ""), "_a", "_ab", "_a"},
		"a validator of a sub-package fails":                   {functionsOf("a", "", saved), functionsOf("b", "fail"), functionsOf("c", ""), "_", "_b", "_"},
		"a validator of a sub-package fails, breadth first":    {functionsOf("a", "", saved, breadthFirst), functionsOf("b", "fail"), functionsOf("c", ""), "_a", "_ab", "_a"},
		"the last sub-package fails":                           {functionsOf("a", "", saved), functionsOf("b", ""), functionsOf("c", "fail"), "_", "_b", "_c"},
		"a function that is not there":                         {functionsOf("a,none", "", saved), functionsOf("b", ""), plainKptfile, "_a", "_ba", "_a"},
		"exec among the mutators: none of them runs":           {functionsOf("a,exec", "", saved), functionsOf("b", ""), plainKptfile, "_", "_b", "_"},
		"exec among the validators: the mutators have run":     {functionsOf("a", "exec", saved), functionsOf("b", ""), plainKptfile, "_a", "_ba", "_a"},
		"the annotation of a sub-package does not count":       {functionsOf("a", "fail"), functionsOf("b", "", saved), plainKptfile, "_", "_", "_"},
		"the annotation in capitals":                           {functionsOf("a", "fail", `kpt.dev/save-on-render-failure: "TRUE"`), plainKptfile, plainKptfile, "_a", "_a", "_a"},
		"the annotation with another value":                    {functionsOf("a", "fail", `kpt.dev/save-on-render-failure: "1"`), plainKptfile, plainKptfile, "_", "_", "_"},
		"a mistake in a Kptfile is found before anything runs": {functionsOf("a", "", saved), functionsOf("b", ""), functionsOf("c", "") + "  generators: []\n", "_", "_", "_"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files := map[string]string{
				"Kptfile": test.root, "a.yaml": resource("_"), "sub/Kptfile": test.sub, "sub/a.yaml": resource("_"),
				"z/Kptfile": test.last, "z/a.yaml": resource("_"),
			}
			outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{Functions: functions})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(outcome.Failure).NotTo(BeNil())
			want := maps.Clone(files)
			want["a.yaml"], want["sub/a.yaml"], want["z/a.yaml"] = resource(test.wantRoot), resource(test.wantSub), resource(test.wantLast)
			g.Expect(outcome.Files).To(Equal(want))
		})
	}
}

func TestAFailedRenderThatIsSavedDeletesNoFiles(t *testing.T) {
	g := NewWithT(t)
	files := map[string]string{
		"Kptfile": functionsOf("move,fail", "", saved), "a.yaml": configMap, "b.yaml": configMap + "---\n" + configMap,
	}
	move := func(_ context.Context, list *function.ResourceList) error {
		list.Items[1].Path = "moved.yaml"
		list.Items = list.Items[:3]
		return nil
	}
	fail := func(context.Context, *function.ResourceList) error { return fmt.Errorf("on purpose") }
	outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{
		Functions: function.Set{}.With("move", move).With("fail", fail),
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Files).To(HaveKeyWithValue("a.yaml", configMap), "moved away, and yet not deleted")
	g.Expect(outcome.Files).To(HaveKeyWithValue("moved.yaml", configMap))
	g.Expect(outcome.Files).To(HaveKeyWithValue("b.yaml", configMap), "the second document is gone")
}
