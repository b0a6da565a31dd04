package function_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// run runs a function over documents and returns what it left, its list and its error.
func run(t *testing.T, f function.Func, config string, documents ...string) (string, *function.ResourceList, error) {
	t.Helper()
	list := &function.ResourceList{Stderr: &bytes.Buffer{}}
	if config != "" {
		list.Config = yaml.MustParse(config)
	}
	for i, document := range documents {
		list.Items = append(list.Items, &function.Item{Object: yaml.MustParse(document), Path: "file.yaml", Index: i})
	}
	err := f(context.Background(), list)
	var out []string
	for _, item := range list.Items {
		out = append(out, item.Object.MustString())
	}
	return strings.Join(out, "---\n"), list, err
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
`

func TestASetFindsBuiltInsByTheNameInTheImage(t *testing.T) {
	for image, found := range map[string]bool{
		"set-labels":               true,
		"set-labels:v0.2.0":        true,
		"gcr.io/kpt-fn/set-labels": true,
		"gcr.io/kpt-fn/set-labels:unstable@sha256:0123":          true,
		"ghcr.io/kptdev/krm-functions-catalog/set-labels:latest": true,
		"ghcr.io/kptdev/krm-functions-catalog/sub/set-labels:v1": false,
		"registry.example.com/set-labels:v0.2.0":                 false,
		"localhost:5000/set-labels":                              false,
		"ghcr.io/kptdev/krm-functions-catalog/no-such-function":  false,
		"":             false,
		":v1":          false,
		"@sha256:0123": false,
	} {
		t.Run(image, func(t *testing.T) {
			_, got := function.Builtins().Lookup(image)
			NewWithT(t).Expect(got).To(Equal(found))
		})
	}
}

func TestASetWithImagesSubstitutesNothing(t *testing.T) {
	g := NewWithT(t)
	set := function.Builtins().WithImages(map[string]string{"registry.example.com/labels:v1": "set-labels"})
	_, found := set.Lookup("registry.example.com/labels:v1")
	g.Expect(found).To(BeTrue())
	_, found = set.Lookup("registry.example.com/labels:v2")
	g.Expect(found).To(BeFalse())
	_, found = set.Lookup("set-labels:v0.2.0")
	g.Expect(found).To(BeFalse())
	_, found = function.Builtins().WithImages(nil).Lookup("set-labels:v0.2.0")
	g.Expect(found).To(BeFalse())
}

func TestAWrongFunctionConfigIsExplained(t *testing.T) {
	configMap := func(data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: " + data
	}
	own := func(kind, fields string) string {
		return "apiVersion: fn.kpt.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: config}\n" + fields
	}
	for name, test := range map[string]struct{ function, config, says string }{
		"set-namespace without a config":               {"set-namespace", "", "no functionConfig is given"},
		"set-namespace without a namespace":            {"set-namespace", configMap("{a: b}"), "data.namespace is empty"},
		"set-namespace of its own kind without one":    {"set-namespace", own("SetNamespace", ""), "namespace is empty"},
		"set-namespace with another kind":              {"set-namespace", own("SetLabels", ""), `kind "SetLabels"`},
		"set-labels without a config":                  {"set-labels", "", "no functionConfig is given"},
		"set-labels with a list":                       {"set-labels", own("SetLabels", "labels: [a]"), "labels must be a mapping"},
		"set-labels with a nested value":               {"set-labels", configMap("{a: {b: c}}"), "data.a must be a string"},
		"set-labels without labels":                    {"set-labels", own("SetLabels", ""), "labels is missing"},
		"set-annotations with another kind":            {"set-annotations", own("SetLabels", ""), `kind "SetLabels"`},
		"set-annotations with bad additional fields":   {"set-annotations", own("SetAnnotations", "annotations: {a: b}\nadditionalAnnotationFields: a"), "additionalAnnotationFields"},
		"apply-setters without a config":               {"apply-setters", "", "no functionConfig is given"},
		"apply-replacements with a ConfigMap":          {"apply-replacements", configMap("{a: b}"), "ApplyReplacements"},
		"apply-replacements without replacements":      {"apply-replacements", own("ApplyReplacements", ""), "replacements is empty"},
		"apply-replacements with a string":             {"apply-replacements", own("ApplyReplacements", "replacements: a"), "replacements"},
		"apply-replacements with an empty target":      {"apply-replacements", own("ApplyReplacements", "replacements: [{source: {kind: A}, targets: [null]}]"), "targets[0] is empty"},
		"starlark without a config":                    {"starlark", "", "no functionConfig is given"},
		"starlark without a program":                   {"starlark", own("StarlarkRun", ""), "has no program"},
		"starlark with a program that is far too long": {"starlark", own("StarlarkRun", "source: "+strings.Repeat("a", 300<<10)), "at most"},
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

func TestSetNamespace(t *testing.T) {
	const to = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {namespace: new%s}"
	for name, test := range map[string]struct{ config, in, out, fails string }{
		"leaves a resource of an unknown kind without a namespace alone": {
			in:  "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n",
			out: "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n",
		},
		"sets the namespace of a resource of an unknown kind that has one": {
			in:  "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n  namespace: 'old' # here\n",
			out: "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n  namespace: 'new' # here\n",
		},
		"leaves cluster-scoped resources alone": {
			in:  "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: a\n",
			out: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: a\n",
		},
		"leaves local configuration alone": {
			in:  "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  annotations:\n    config.kubernetes.io/local-config: \"true\"\n",
			out: "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  annotations:\n    config.kubernetes.io/local-config: \"true\"\n",
		},
		"follows the service of an APIService": {
			in:  "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata:\n  name: a\nspec:\n  service:\n    namespace: old\n",
			out: "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata:\n  name: a\nspec:\n  service:\n    namespace: new\n",
		},
		"invents no webhook in a CustomResourceDefinition": {
			in:  "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a\nspec:\n  conversion:\n    strategy: None\n",
			out: "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a\nspec:\n  conversion:\n    strategy: None\n",
		},
		"replaces only the namespace that the matcher names": {
			config: ", namespaceMatcher: other",
			in:     "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  namespace: old\n",
			out:    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  namespace: old\n",
		},
		"matches the upstream namespace too": {
			config: ", namespaceMatcher: upstream",
			in:     "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  namespace: old\n  annotations:\n    internal.kpt.dev/upstream-identifier: '|Secret|upstream|a'\n",
			out:    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  namespace: new\n  annotations:\n    internal.kpt.dev/upstream-identifier: '|Secret|upstream|a'\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, _, err := run(t, function.SetNamespace, fmt.Sprintf(to, test.config), test.in)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
		})
	}
}

func TestSetNamespaceRefusesSeveralUpstreamNamespaces(t *testing.T) {
	g := NewWithT(t)
	secret := func(namespace string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  annotations:\n    internal.kpt.dev/upstream-identifier: '|Secret|" +
			namespace + "|a'\n"
	}
	_, _, err := run(t, function.SetNamespace, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {namespace: new}",
		secret("one"), secret("two"))
	g.Expect(err).To(MatchError(ContainSubstring("set namespaceMatcher")))
}

func TestSetLabelsAddsToSelectorsOnlyWhereTheyMustAgree(t *testing.T) {
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {app: new}"
	for name, test := range map[string]struct{ in, out string }{
		"a selector of a Job that has the label": {
			in:  "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\nspec:\n  selector:\n    matchLabels:\n      app: old\n",
			out: "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\n  labels:\n    app: new\nspec:\n  selector:\n    matchLabels:\n      app: new\n",
		},
		"a selector of a Job without the label": {
			in:  "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\nspec:\n  selector:\n    matchLabels:\n      tier: old\n",
			out: "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\n  labels:\n    app: new\nspec:\n  selector:\n    matchLabels:\n      tier: old\n",
		},
		"a network policy": {
			in: "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: a\nspec:\n  podSelector:\n    matchLabels:\n      app: old\n" +
				"  ingress:\n  - from:\n    - podSelector:\n        matchLabels:\n          tier: front\n    - podSelector:\n        matchLabels:\n          app: old\n",
			out: "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: a\n  labels:\n    app: new\nspec:\n  podSelector:\n    matchLabels:\n      app: new\n" +
				"  ingress:\n  - from:\n    - podSelector:\n        matchLabels:\n          tier: front\n    - podSelector:\n        matchLabels:\n          app: new\n",
		},
		"labels that are null": {
			in:  "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  labels:\n",
			out: "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  labels:\n    app: new\n",
		},
		"labels that are no mapping stay as they are": {
			in:  "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  labels: [a]\n",
			out: "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  labels: [a]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, _, err := run(t, function.SetLabels, config, test.in)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
		})
	}
}

func TestApplySettersKeepsWhatIsNotGiven(t *testing.T) {
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {tag: '2', empty: '', none: ''}"
	const in = `apiVersion: v1
kind: Thing
metadata:
  name: a
image: reg.example.com/app:1 # kpt-set: ${registry}/app:${tag}
other: 1 # kpt-set: ${unrelated}
empty: full # kpt-set: ${empty}
list: # kpt-set: ${none}
- a
plain: 1 # a comment
`
	const out = `apiVersion: v1
kind: Thing
metadata:
  name: a
image: reg.example.com/app:2 # kpt-set: ${registry}/app:${tag}
other: 1 # kpt-set: ${unrelated}
empty: "" # kpt-set: ${empty}
list: [] # kpt-set: ${none}
plain: 1 # a comment
`
	g := NewWithT(t)
	got, _, err := run(t, function.ApplySetters, config, in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(out))
	again, _, err := run(t, function.ApplySetters, config, got)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(out))
}

func starlarkRun(source string) string {
	return "apiVersion: fn.kpt.dev/v1alpha1\nkind: StarlarkRun\nmetadata: {name: test}\nsource: |\n  " +
		strings.ReplaceAll(source, "\n", "\n  ") + "\n"
}

func TestStarlarkProgramsAreBounded(t *testing.T) {
	for name, test := range map[string]struct{ source, says string }{
		"a loop without end":                 {"while True: pass", "more than 200000 steps"},
		"a recursion without end":            {"def f(): return f()\nf()", "nested deeper than"},
		"values nested without end":          {"x = []\nfor i in range(5000): x = [x]\nctx.resource_list['items'][0]['x'] = x", "nested deeper than"},
		"a value that contains itself":       {"x = {}\nx['x'] = x\nctx.resource_list['items'][0]['x'] = x", "nested deeper than"},
		"a module that is not there":         {"load('http.star', 'http')", `no module "http.star"`},
		"no list of items":                   {"ctx.resource_list['items'] = 1", "must leave a list"},
		"an item that is no dictionary":      {"ctx.resource_list['items'].append(1)", "must be a dictionary"},
		"a function as a value":              {"ctx.resource_list['items'][0]['f'] = len", "cannot be written as YAML"},
		"a number that YAML has no word for": {"ctx.resource_list['items'][0]['f'] = float('nan')", "cannot be written"},
		"a path annotation that is a list":   {"ctx.resource_list['items'][0]['metadata']['annotations']['config.kubernetes.io/path'] = []", "must be a string"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			list := &function.ResourceList{
				Config:   yaml.MustParse(starlarkRun(test.source)),
				Items:    []*function.Item{{Object: yaml.MustParse(deployment)}},
				Stderr:   &bytes.Buffer{},
				MaxSteps: 200_000,
			}
			g.Expect(function.Starlark(context.Background(), list)).To(MatchError(ContainSubstring(test.says)))
			g.Expect(list.Items[0].Object.MustString()).To(Equal(deployment))
		})
	}
}

func TestStarlarkStopsWhenTheContextIsDone(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	list := &function.ResourceList{
		Config: yaml.MustParse(starlarkRun("print('started')\nwhile True: pass")),
		Stderr: writerFunc(func() { close(started) }),
	}
	done := make(chan error)
	go func() { done <- function.Starlark(ctx, list) }()
	<-started
	cancel()
	g.Eventually(done, time.Minute).Should(Receive(MatchError(context.Canceled)))
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestStarlarkKeepsWhatItDoesNotChange(t *testing.T) {
	const in = `# head
apiVersion: v1
kind: ConfigMap
metadata: {name: 'a'} # flow
data:
  # first
  b: "1"   # one
  a: 0x1F
  list: [ {name: x}, {name: y} ]
`
	for name, source := range map[string]string{
		"nothing done":            "pass",
		"set to the same":         "ctx.resource_list['items'][0]['data']['b'] = '1'",
		"replaced by a copy":      "ctx.resource_list['items'] = [dict(r) for r in ctx.resource_list['items']]",
		"fields in another order": "d = ctx.resource_list['items'][0]['data']\nb = d.pop('b')\nd['b'] = b",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			list := &function.ResourceList{
				Config: yaml.MustParse(starlarkRun(source)), Stderr: &bytes.Buffer{},
				Items: []*function.Item{{Object: yaml.MustParse(in), Path: "a.yaml"}},
			}
			before := function.Fingerprint(list.Items[0].Object.YNode())
			g.Expect(function.Starlark(context.Background(), list)).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
			g.Expect(list.Items[0].Path).To(Equal("a.yaml"))
			g.Expect(function.Fingerprint(list.Items[0].Object.YNode())).To(Equal(before))
		})
	}
}

func TestStarlarkModules(t *testing.T) {
	for expression, want := range map[string]string{
		"yaml.dumps(yaml.loads('b: [1, 0x10]\\na: {c: null, d: 2024-01-02}'))": "a:\n  c: null\n  d: \"2024-01-02\"\nb:\n- 1\n- 16\n",
		"yaml.loads('&a {x: 1}')['x']":                                         "1",
		"json.encode(json.decode('{\"a\": [1.5]}'))":                           `{"a":[1.5]}`,
		"base64.decode(base64.encode('hällo'))":                                "hällo",
		"base64.encode('??>', encoding='url')":                                 "Pz8-",
		"csv.read_all('a;b\\n1;2\\n', comma=';', skip=1)":                      `[["1", "2"]]`,
		"csv.write_all([['a', 'b,c'], (1, 2)])":                                "a,\"b,c\"\n1,2\n",
		"hash.md5('a')":                                                        "0cc175b9c0f1b6a831c399e269772661",
		"hash.sha1('a')":                                                       "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8",
		"hash.sha256('a')":                                                     "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
		"math.floor(1.5)":                                                      "1",
		"time.parse_duration('1h').minutes":                                    "60.0",
		"re.findall('a(.)', 'abac')":                                           `["b", "c"]`,
		"re.match('a', 'ba')":                                                  "None",
		"re.match('(a)b', 'abc')":                                              `("ab", "a")`,
		"re.search('b', 'äb')":                                                 "[1, 2]",
		"re.split(',', 'a,b')":                                                 `("a", "b")`,
		"re.sub('a', 'b', 'aa')":                                               "bb",
		"krmfn.match_gvk(ctx.resource_list['items'][0], 'v1', 'Secret')":       "True",
		"krmfn.match_gvk(ctx.resource_list['items'][0], 'v1', 'Pod')":          "False",
		"krmfn.match_name(ctx.resource_list['items'][0], 'a')":                 "True",
		"krmfn.match_namespace(ctx.resource_list['items'][0], 'a')":            "False",
	} {
		t.Run(expression, func(t *testing.T) {
			g := NewWithT(t)
			var source strings.Builder
			for module, name := range map[string]string{
				"encoding/yaml.star": "yaml", "encoding/json.star": "json", "encoding/base64.star": "base64",
				"encoding/csv.star": "csv", "hash.star": "hash",
				"math.star": "math", "time.star": "time", "re.star": "re", "krmfn.star": "krmfn",
			} {
				fmt.Fprintf(&source, "load(%q, %q)\n", module, name)
			}
			_, list, err := run(t, function.Starlark, starlarkRun(source.String()+"print("+expression+")"),
				"apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Stderr.(*bytes.Buffer).String()).To(Equal(want + "\n"))
		})
	}
}

func TestAliasesThatCannotBeCopiedAreRefused(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 'b'; i < 'i'; i++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", i, i, strings.TrimSuffix(strings.Repeat("*"+string(i-1)+", ", 10), ", "))
	}
	for name, test := range map[string]struct{ text, says string }{
		"an alias to itself":        {"a: &a [*a]", "alias to itself"},
		"an alias to its parent":    {"a: &a {b: {c: *a}}", "alias to itself"},
		"aliases that multiply":     {bomb, "stand for more than"},
		"an alias that is harmless": {"a: &a [1]\nb: *a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var node yaml.Node
			g.Expect(yaml.Unmarshal([]byte(test.text), &node)).To(Succeed())
			err := function.CheckAliases(&node)
			if test.says == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.says)))
		})
	}
}

func TestAFailureInTheResultsIsReported(t *testing.T) {
	g := NewWithT(t)
	_, list, err := run(t, function.ApplySetters, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '1'}",
		"apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\nx: y # kpt-set: ${a}-${b}\n")
	g.Expect(errors.Is(err, function.ErrFailed)).To(BeTrue())
	g.Expect(list.Results).To(HaveLen(1))
	g.Expect(list.Results[0].Severity).To(Equal(function.Error))
	g.Expect(list.Results[0].Field.Path).To(Equal("x"))
}
