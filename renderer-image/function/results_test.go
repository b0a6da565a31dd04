package function_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// Every built-in says of each resource it changed or refuses which one it is, where it is, and, unless the whole resource is
// meant, which field.
func TestEveryBuiltInReportsStructuredResults(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  containers:\n  - name: web # kpt-set: ${name}\n    image: nginx:1\n"
	const sink = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: sink\n  namespace: shop\ndata:\n  name: old\n"
	local := "apiVersion: v1\nkind: Secret\nmetadata:\n  name: web\n  namespace: shop\n  annotations: {config.kubernetes.io/local-config: 'true'}\n"
	whole := "" // stands for the resource itself
	for name, test := range map[string]struct {
		config, in string
		field      string
		old, value string
	}{
		"apply-replacements": {
			ownKind("ApplyReplacements", "replacements: [{source: {kind: Pod, fieldPath: metadata.name}, targets: [{select: {kind: Pod}, fieldPaths: ['spec.containers.0.image']}]}]"),
			pod, "spec.containers[0].image", "nginx:1", "web",
		},
		"apply-setters":                 {configMapOf("{name: other}"), pod, "spec.containers[0].name", "web", "other"},
		"create-setters":                {configMapOf("{image: 'nginx:1'}"), pod, "spec.containers[0].image", "", ""},
		"ensure-name-substring":         {configMapOf("{prepend: a-}"), pod, "metadata.name", "web", "a-web"},
		"kubeconform":                   {configMapOf("{strict: 'true'}"), pod + "    imag: a\n", "spec.containers[0].imag", "", ""},
		"remove-local-config-resources": {"", local, whole, "", ""},
		"search-replace":                {configMapOf("{by-path: metadata.name, put-value: b}"), sink, "metadata.name", "sink", "b"},
		"set-annotations":               {configMapOf("{a: b}"), pod, "metadata.annotations", "", ""},
		"set-image":                     {configMapOf("{name: nginx, newTag: '2'}"), pod, "spec.containers[0].image", "nginx:1", "nginx:2"},
		"set-labels":                    {configMapOf("{a: b}"), pod, "metadata.labels", "", ""},
		"set-name-prefix":               {configMapOf("{prefix: a-}"), pod, "metadata.name", "web", "a-web"},
		"set-namespace":                 {configMapOf("{namespace: new}"), pod, "metadata.namespace", "shop", "new"},
		"upsert-resource":               {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sink, namespace: shop}\n", sink, whole, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f, found := function.Builtins().Lookup(name)
			g.Expect(found).To(BeTrue())
			_, list, _ := run(t, f, test.config, test.in)
			var about []function.Result
			for _, result := range list.Results {
				g.Expect(result.Severity).To(BeElementOf(function.Info, function.Warning, function.Error))
				g.Expect(result.Message).NotTo(BeEmpty())
				if result.ResourceRef != nil {
					about = append(about, result)
				}
			}
			g.Expect(about).NotTo(BeEmpty())
			for _, result := range about {
				g.Expect(result.ResourceRef.Kind).NotTo(BeEmpty())
				g.Expect(result.ResourceRef.Name).NotTo(BeEmpty())
				g.Expect(result.File).To(Equal(&function.File{Path: "file.yaml"}))
			}
			if test.field == whole {
				g.Expect(about[0].Field).To(BeNil())
				return
			}
			g.Expect(about[0].Field).To(Equal(&function.Field{Path: test.field, CurrentValue: test.old, ProposedValue: test.value}))
		})
	}
}

// The programs that starlark runs decide what they report, by failing.
func TestStarlarkFailsWithTheLine(t *testing.T) {
	g := NewWithT(t)
	_, _, err := run(t, function.Starlark, starlarkRun("x = 1\nfail('no')"), deployment)
	g.Expect(err).To(MatchError("test:2:5: fail: no"))
}

func TestAWrongFunctionConfigOfTheOtherFunctionsIsExplained(t *testing.T) {
	for name, test := range map[string]struct{ function, config, says string }{
		"apply-setters without setters":                        {"apply-setters", configMapOf("{}"), "gives no setters"},
		"create-setters with its own kind":                     {"create-setters", ownKind("CreateSetters", ""), `kind "CreateSetters": use a ConfigMap`},
		"ensure-name-substring without a config":               {"ensure-name-substring", "", "no functionConfig is given"},
		"ensure-name-substring without settings":               {"ensure-name-substring", configMapOf("{}"), "data has 0 entries: set one"},
		"ensure-name-substring with both":                      {"ensure-name-substring", configMapOf("{prepend: a, append: b}"), "data has 2 entries: set one"},
		"ensure-name-substring with another":                   {"ensure-name-substring", configMapOf("{prefix: a}"), "data.prefix: there is no such setting"},
		"ensure-name-substring with nothing":                   {"ensure-name-substring", configMapOf("{append: ''}"), "data.append is empty"},
		"ensure-name-substring without a substring":            {"ensure-name-substring", ownKind("EnsureNameSubstring", ""), "field substring is empty"},
		"ensure-name-substring with a bad mode":                {"ensure-name-substring", ownKind("EnsureNameSubstring", "substring: a\neditMode: suffix"), `editMode is "suffix": use prepend or append`},
		"ensure-name-substring with both field lists":          {"ensure-name-substring", ownKind("EnsureNameSubstring", "substring: a\nfieldSpecs: []\nadditionalNameFields: []"), "move all to additionalNameFields"},
		"ensure-name-substring with a field without a path":    {"ensure-name-substring", ownKind("EnsureNameSubstring", "substring: a\nadditionalNameFields: [{kind: A}]"), "additionalNameFields[0].path is empty"},
		"ensure-name-substring with a path through a value":    {"ensure-name-substring", ownKind("EnsureNameSubstring", "substring: a\nadditionalNameFields: [{path: kind/name}]"), "additionalNameFields"},
		"kubeconform with its own kind":                        {"kubeconform", ownKind("Kubeconform", ""), `kind "Kubeconform": use a ConfigMap`},
		"kubeconform with a word that is no boolean":           {"kubeconform", configMapOf("{strict: maybe}"), `data.strict: "maybe" is neither`},
		"kubeconform with a schema from elsewhere":             {"kubeconform", configMapOf("{schema_location: 'https://example.com'}"), "data.schema_location: a render reads schemas from nowhere else"},
		"kubeconform with a misspelt setting":                  {"kubeconform", configMapOf("{skip_kind: A}"), "data.skip_kind: there is no such setting"},
		"set-image with fields that are none":                  {"set-image", ownKind("SetImage", "image: {name: a, newTag: b}\nadditionalImageFields: a"), "additionalImageFields must be a list"},
		"set-labels with a field without a path":               {"set-labels", ownKind("SetLabels", "labels: {a: b}\nadditionalLabelFields: [{create: true}]"), "additionalLabelFields[0].path is empty"},
		"set-name-prefix without a prefix or package's name":   {"set-name-prefix", configMapOf("{}"), "field prefix is empty"},
		"set-name-prefix with another kind":                    {"set-name-prefix", ownKind("SetLabels", ""), `kind "SetLabels"`},
		"upsert-resource without a config":                     {"upsert-resource", "", "no functionConfig is given"},
		"upsert-resource with what the Kptfile says in place":  {"upsert-resource", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: function-input}\ndata: {a: b}", "set configPath"},
		"upsert-resource with a resource without a name":       {"upsert-resource", "apiVersion: v1\nkind: Secret", "metadata.name is empty"},
		"upsert-resource with such a resource in a list":       {"upsert-resource", "apiVersion: v1\nkind: List\nmetadata: {name: l}\nitems: [{apiVersion: v1, metadata: {name: a}}]", "items[0].kind is empty"},
		"search-replace with the setting of another function":  {"search-replace", configMapOf("{namespace: a}"), "data.namespace: there is no such setting"},
		"starlark with a value that is not a program in place": {"starlark", configMapOf("{source: ''}"), "has no program"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f, found := function.Builtins().Lookup(test.function)
			g.Expect(found).To(BeTrue())
			out, _, err := run(t, f, test.config, deployment)
			g.Expect(err).To(MatchError(ContainSubstring(test.says)))
			g.Expect(out).To(Equal(deployment))
		})
	}
}

func TestAdditionalFieldsAreSetToo(t *testing.T) {
	const thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\ndata:\n  selector:\n    a: old\n"
	for name, test := range map[string]struct{ function, config, out string }{
		"labels where the mapping is": {
			"set-labels", ownKind("SetLabels", "labels: {a: b}\nadditionalLabelFields: [{kind: Thing, path: data/selector}]"),
			"apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n  labels:\n    a: b\ndata:\n  selector:\n    a: b\n",
		},
		"labels in a mapping that is made": {
			"set-labels", ownKind("SetLabels", "labels: {a: b}\nadditionalLabelFields: [{group: example.com, version: v1, path: data/labels, create: true}]"),
			"apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n  labels:\n    a: b\ndata:\n  selector:\n    a: old\n  labels:\n    a: b\n",
		},
		"no labels in a mapping that is not there": {
			"set-labels", ownKind("SetLabels", "labels: {a: b}\nadditionalLabelFields: [{path: data/labels}]"),
			"apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n  labels:\n    a: b\ndata:\n  selector:\n    a: old\n",
		},
		"annotations of a certain version": {
			"set-annotations", ownKind("SetAnnotations", "annotations: {a: b}\nadditionalAnnotationFields: [{version: v2, path: data/selector}]"),
			"apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n  annotations:\n    a: b\ndata:\n  selector:\n    a: old\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f, _ := function.Builtins().Lookup(test.function)
			out, _, err := run(t, f, test.config, thing)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
			again, _, err := run(t, f, test.config, out)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(out))
		})
	}
}
