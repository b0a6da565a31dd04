package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

const (
	plainKptfile = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: test\n"
	configMap    = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"
)

// kptfileWith is a Kptfile whose only mutator is called test.
func kptfileWith(fields string) string {
	return plainKptfile + "pipeline:\n  mutators:\n    - image: test\n" + fields
}

func renderWith(t *testing.T, files map[string]string, f function.Func, limits pipeline.Limits) *pipeline.Outcome {
	t.Helper()
	outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{
		Functions: function.Builtins().With("test", f),
		Limits:    limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func nothing(context.Context, *function.ResourceList) error { return nil }

func TestMistakesInAPackageAreExplained(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		says  []string
	}{
		"no Kptfile":                     {map[string]string{"a.yaml": configMap}, []string{"no Kptfile"}},
		"an empty Kptfile":               {map[string]string{"Kptfile": "# nothing\n"}, []string{"Kptfile", "exactly one"}},
		"a Kptfile of two documents":     {map[string]string{"Kptfile": plainKptfile + "---\n" + plainKptfile}, []string{"2 YAML documents"}},
		"a Kptfile that is a list":       {map[string]string{"Kptfile": "- a\n"}, []string{"Kptfile", "must be a mapping"}},
		"another kind in the Kptfile":    {map[string]string{"Kptfile": "apiVersion: kpt.dev/v1\nkind: Kpt\n"}, []string{"kind", `"Kpt"`}},
		"another version of the Kptfile": {map[string]string{"Kptfile": "apiVersion: kpt.dev/v2\nkind: Kptfile\n"}, []string{"apiVersion", "kpt.dev/v2"}},
		"a misspelt list":                {map[string]string{"Kptfile": plainKptfile + "pipeline: {mutator: []}\n"}, []string{"pipeline.mutator", "no such field"}},
		"a function that is a string":    {map[string]string{"Kptfile": plainKptfile + "pipeline: {mutators: [a]}\n"}, []string{"pipeline.mutators[0]", "mapping"}},
		"a function without an image":    {map[string]string{"Kptfile": plainKptfile + "pipeline: {mutators: [{name: a}]}\n"}, []string{"pipeline.mutators[0]", "set image"}},
		"image and exec":                 {map[string]string{"Kptfile": kptfileWith("      exec: a\n")}, []string{"exclude each other"}},
		"a nested configMap":             {map[string]string{"Kptfile": kptfileWith("      configMap: {a: {b: c}}\n")}, []string{"pipeline.mutators[0].configMap.a", "string"}},
		"a misspelt selector":            {map[string]string{"Kptfile": kptfileWith("      selectors: [{kinds: a}]\n")}, []string{"selectors[0].kinds"}},
		"a Kptfile as the configuration": {map[string]string{"Kptfile": kptfileWith("      configPath: Kptfile\n")}, []string{"configPath", "is a Kptfile"}},
		"a file that is no YAML":         {map[string]string{"Kptfile": plainKptfile, "b/a.yaml": configMap + "---\na: [\n"}, []string{"b/a.yaml", "line 6", ".krmignore"}},
		"text behind the end mark":       {map[string]string{"Kptfile": plainKptfile, "a.yaml": configMap + "...\n" + configMap}, []string{"a.yaml", "line 5", "document start"}},
		"an alias to itself":             {map[string]string{"Kptfile": plainKptfile, "a.yaml": configMap + "data: &a {a: *a}\n"}, []string{"a.yaml", "alias"}},
		"a resource without a name":      {map[string]string{"Kptfile": kptfileWith(""), "a.yaml": "apiVersion: v1\nkind: List\n"}, []string{"a.yaml", "metadata.name"}},
		"a path that is absolute":        {map[string]string{"Kptfile": plainKptfile, "/a.yaml": configMap}, []string{`"/a.yaml"`}},
		"a path that leads out":          {map[string]string{"Kptfile": plainKptfile, "../a.yaml": configMap}, []string{`"../a.yaml"`}},
		"a path with a dot":              {map[string]string{"Kptfile": plainKptfile, "a/./b.yaml": configMap}, []string{`"a/./b.yaml"`}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			outcome := renderWith(t, test.files, nothing, pipeline.Limits{})
			g.Expect(outcome.Failure).NotTo(BeNil())
			g.Expect(outcome.Failure.Class).To(Equal(pipeline.InvalidPackage))
			for _, words := range test.says {
				g.Expect(outcome.Failure.Message).To(ContainSubstring(words))
			}
			g.Expect(outcome.Files).To(Equal(test.files))
		})
	}
}

func TestWhatAFunctionLeavesIsChecked(t *testing.T) {
	at := func(path string) function.Func {
		return func(_ context.Context, list *function.ResourceList) error {
			list.Items = append(list.Items, &function.Item{Object: yaml.MustParse(configMap), Path: path, Index: 0})
			return nil
		}
	}
	for name, test := range map[string]struct {
		function function.Func
		class    pipeline.Class
		says     string
	}{
		"a path outside of the package": {at("../a.yaml"), pipeline.InvalidOutput, "outside of its package"},
		"a path that leads out later":   {at("b/../../a.yaml"), pipeline.InvalidOutput, "outside of its package"},
		"a path of no resource file":    {at("README.md"), pipeline.InvalidOutput, ".yaml"},
		"a path with a line break":      {at("a\n.yaml"), pipeline.InvalidOutput, `a\n.yaml`},
		"a path that is taken":          {at("a.yaml"), pipeline.InvalidOutput, "two resources"},
		"a path that is ignored":        {at("ignored.yaml"), pipeline.InvalidOutput, ".krmignore"},
		"a new path that is ignored":    {at("new/ignored.yaml"), pipeline.InvalidOutput, ".krmignore"},
		"a path of 1,025 bytes":         {at(strings.Repeat("a", 1020) + ".yaml"), pipeline.InvalidOutput, "shorter path"},
		"a resource without a kind": {func(_ context.Context, list *function.ResourceList) error {
			list.Items[1].Object = yaml.MustParse("apiVersion: v1")
			return nil
		}, pipeline.InvalidOutput, "without kind"},
		"an empty resource": {func(_ context.Context, list *function.ResourceList) error {
			list.Items = append(list.Items, nil)
			return nil
		}, pipeline.InvalidOutput, "empty resource"},
		"no Kptfile": {func(_ context.Context, list *function.ResourceList) error {
			list.Items = nil
			return nil
		}, pipeline.InvalidOutput, "Kptfile"},
		"the same resource twice": {func(_ context.Context, list *function.ResourceList) error {
			list.Items = append(list.Items, list.Items[1])
			return nil
		}, pipeline.InvalidOutput, "two resources"},
		"too many resources": {func(_ context.Context, list *function.ResourceList) error {
			for i := range 20 {
				list.Items = append(list.Items, &function.Item{Object: yaml.MustParse(configMap), Path: fmt.Sprintf("%d.yaml", i)})
			}
			return nil
		}, pipeline.TooLarge, "resources"},
		"too many bytes": {func(_ context.Context, list *function.ResourceList) error {
			list.Items[1].Object = yaml.MustParse(configMap + "data:\n  a: " + strings.Repeat("a", 10_000) + "\n")
			return nil
		}, pipeline.TooLarge, "bytes"},
		"a panic": {func(context.Context, *function.ResourceList) error { panic("oh") }, pipeline.FunctionFailed, "crashed: oh"},
		"an error": {func(context.Context, *function.ResourceList) error { return fmt.Errorf("oh") },
			pipeline.FunctionFailed, "pipeline.mutators[0]: test failed: oh"},
		"an error among the results": {func(_ context.Context, list *function.ResourceList) error {
			list.Results = append(list.Results, function.Result{Severity: function.Error, Message: "oh",
				File: &function.File{Path: "f.yaml"}, Field: &function.Field{Path: "a.b"}})
			return nil
		}, pipeline.FunctionFailed, "f.yaml: a.b: oh"},
		"a function that takes too long": {func(ctx context.Context, _ *function.ResourceList) error {
			<-ctx.Done()
			return ctx.Err()
		}, pipeline.FunctionTimedOut, "longer than"},
	} {
		for _, save := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, saved %v", name, save), func(t *testing.T) {
				g := NewWithT(t)
				files := map[string]string{
					"Kptfile": kptfileWith(""), "a.yaml": configMap, ".krmignore": "ignored.yaml\n", "ignored.yaml": "a: b\n",
				}
				if save {
					files["Kptfile"] = strings.Replace(files["Kptfile"], "  name: test\n",
						"  name: test\n  annotations:\n    kpt.dev/save-on-render-failure: \"true\"\n", 1)
				}
				outcome := renderWith(t, files, test.function, pipeline.Limits{
					MaxResources: 10, MaxBytes: 5_000, FunctionTimeout: 10 * time.Millisecond,
				})
				g.Expect(outcome.Failure).NotTo(BeNil())
				g.Expect(outcome.Failure.Class).To(Equal(test.class))
				g.Expect(outcome.Failure.Message).To(ContainSubstring(test.says))
				g.Expect(outcome.Files).To(Equal(files))
				g.Expect(outcome.Steps).To(HaveLen(1))
			})
		}
	}
}

func TestNewResourcesGoWhereTheirKindAndNameSay(t *testing.T) {
	g := NewWithT(t)
	outcome := renderWith(t, map[string]string{"Kptfile": kptfileWith("")},
		func(_ context.Context, list *function.ResourceList) error {
			for range 2 {
				list.Items = append(list.Items, &function.Item{Object: yaml.MustParse(configMap), Index: -1})
			}
			return nil
		}, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(outcome.Files).To(HaveKeyWithValue("configmap_a.yaml", configMap+"---\n"+configMap))
}

func TestStandardErrorAndResultsAreBounded(t *testing.T) {
	g := NewWithT(t)
	outcome := renderWith(t, map[string]string{"Kptfile": kptfileWith("")},
		func(_ context.Context, list *function.ResourceList) error {
			for range 100 {
				_, _ = list.Stderr.Write([]byte("0123456789"))
				list.Results = append(list.Results, function.Result{Message: "a", Severity: function.Info})
			}
			return nil
		}, pipeline.Limits{MaxStderr: 25, MaxResults: 3})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(outcome.Steps[0].Stderr).To(Equal("0123456789012345678901234\n(975 more bytes)"))
	g.Expect(outcome.Steps[0].Results).To(HaveLen(4))
	g.Expect(outcome.Steps[0].Results[3].Message).To(ContainSubstring("97 more"))
}

func TestADoneContextIsAnError(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	var steps []pipeline.Step
	_, err := pipeline.Render(ctx, map[string]string{"Kptfile": kptfileWith("")}, pipeline.Options{
		Functions: function.Builtins().With("test", func(ctx context.Context, _ *function.ResourceList) error {
			cancel()
			return ctx.Err()
		}),
		OnStep: func(step pipeline.Step) { steps = append(steps, step) },
	})
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(steps).To(HaveLen(1))
	g.Expect(steps[0].ExitCode).To(Equal(1))
	_, err = pipeline.Render(ctx, map[string]string{"Kptfile": plainKptfile}, pipeline.Options{})
	g.Expect(err).To(MatchError(context.Canceled))
}

func TestUnchangedDocumentsKeepTheirBytes(t *testing.T) {
	const odd = "# a\n\n---\n\n# b\napiVersion:   v1\nkind: 'ConfigMap'\nmetadata: { name: odd }\ndata:\n    a:   |2\n       x\n\n\n--- # c\n# only this\n---\n"
	g := NewWithT(t)
	files := map[string]string{
		"Kptfile":  kptfileWith(""),
		"odd.yaml": odd,
		"two.yaml": odd + configMap + "...\n",
		"crlf.yml": strings.ReplaceAll(configMap, "\n", "\r\n"),
		"no-end":   "a: b",
		"end.yaml": strings.TrimSuffix(configMap, "\n"),
	}
	outcome := renderWith(t, files, nothing, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(outcome.Files).To(Equal(files))

	outcome = renderWith(t, files, func(_ context.Context, list *function.ResourceList) error {
		for _, item := range list.Items {
			if item.Path == "two.yaml" && item.Index == 1 {
				return item.Object.PipeE(yaml.SetLabel("new", "label"))
			}
		}
		return nil
	}, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	want := maps.Clone(files)
	want["two.yaml"] = odd + configMap + "  labels:\n    new: 'label'\n"
	g.Expect(outcome.Files).To(Equal(want))
}
