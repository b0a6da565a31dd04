package function_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

func configMapOf(data string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: " + data
}

func TestSearchReplace(t *testing.T) {
	const in = `apiVersion: v1
kind: Thing
metadata:
  name: web-a # kept
spec:
  ports:
  - port: 80
    name: "80"
  - port: 81
  deep: {er: {port: 80}}
`
	for name, test := range map[string]struct{ data, out, fails string }{
		"a value keeps its type": {
			data: `{by-value: "80", put-value: "90"}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\nspec:\n  ports:\n  - port: 90\n    name: \"90\"\n" +
				"  - port: 81\n  deep: {er: {port: 90}}\n",
		},
		"a path with an index": {
			data: `{by-path: "spec.ports[1].port", by-value-regex: ".*", put-value: "1"}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\nspec:\n  ports:\n  - port: 80\n    name: \"80\"\n" +
				"  - port: 1\n  deep: {er: {port: 80}}\n",
		},
		"a path with any fields and a comment with a group": {
			data: `{by-path: "spec.ports.**.port", by-value-regex: "8(.)", put-comment: "kpt-set: 8${1}-${x}"}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\nspec:\n  ports:\n  - port: 80 # kpt-set: 80-${x}\n    name: \"80\"\n" +
				"  - port: 81 # kpt-set: 81-${x}\n  deep: {er: {port: 80}}\n",
		},
		"a path that is not there is made": {
			data: `{by-path: metadata.namespace, put-value: new}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\n  namespace: new\nspec:\n  ports:\n  - port: 80\n    name: \"80\"\n" +
				"  - port: 81\n  deep: {er: {port: 80}}\n",
		},
		"another file":               {data: `{by-value: "80", by-file-path: "b/**", put-value: "1"}`, out: in},
		"this file":                  {data: `{by-value: "80", by-file-path: "**/f*.yaml"}`, out: in},
		"part of a value":            {data: `{by-value-regex: "8", put-value: "1"}`, out: in},
		"nothing to look for":        {data: `{put-value: a}`, fails: "looks for nothing"},
		"a misspelt setting":         {data: `{by-values: a}`, fails: "by-values: there is no such setting"},
		"a bad regular expression":   {data: `{by-value-regex: "("}`, fails: "by-value-regex"},
		"a value and its expression": {data: `{by-value-regex: a, by-value: a}`, fails: "remove one"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, _, err := run(t, function.SearchReplace, configMapOf(test.data), in)
			if test.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
		})
	}
}

func TestSetImage(t *testing.T) {
	const in = `apiVersion: v1
kind: Pod
metadata:
  name: a
spec:
  initContainers:
  - image: nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000
  containers:
  - image: "nginx:1" # the web server
  - image: nginx-exporter:1
  - image: localhost:5000/nginx
`
	g := NewWithT(t)
	out, list, err := run(t, function.SetImage, configMapOf(`{name: nginx, newTag: "2"}`), in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(Equal(`apiVersion: v1
kind: Pod
metadata:
  name: a
spec:
  initContainers:
  - image: nginx:2
  containers:
  - image: "nginx:2" # the web server
  - image: nginx-exporter:1
  - image: localhost:5000/nginx
`))
	g.Expect(list.Results).To(HaveLen(2))
	g.Expect(list.Results[1].Field.Path).To(Equal("spec.containers[0].image"))

	out, _, err = run(t, function.SetImage, "apiVersion: fn.kpt.dev/v1alpha1\nkind: SetImage\nmetadata: {name: c}\n"+
		"image: {name: nginx, newName: other}\nadditionalImageFields: [{kind: Thing, path: 'spec/all[]/image'}]\n",
		"apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\nspec:\n  all:\n  - image: nginx:1\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(ContainSubstring("image: other:1\n"))

	for data, says := range map[string]string{
		"{newTag: a}": "names no image", "{name: a}": "changes nothing", "{name: a, newTag: b, digest: c}": "both newTag and digest",
	} {
		_, _, err := run(t, function.SetImage, configMapOf(data), in)
		g.Expect(err).To(MatchError(ContainSubstring(says)))
	}
}

func TestCreateSettersIsTheReverseOfApplySetters(t *testing.T) {
	const in = `apiVersion: v1
kind: Thing
metadata:
  name: a
image: reg.example.com/app:1.27
commented: reg.example.com # not a setter
list:
- b
- a
flow: [a, b]
mixed: [a, {b: c}]
text: |
  reg.example.com
  two lines
`
	const out = `apiVersion: v1
kind: Thing
metadata:
  name: a
image: reg.example.com/app:1.27 # kpt-set: ${registry}/app:${tag}
commented: reg.example.com # not a setter
list: # kpt-set: ${names}
- b
- a
flow: [a, b] # kpt-set: ${names}
mixed: [a, {b: c}]
text: |
  reg.example.com
  two lines
`
	g := NewWithT(t)
	config := configMapOf(`{registry: reg.example.com, tag: "1.27", names: "[a, b]", empty: ""}`)
	got, list, err := run(t, function.CreateSetters, config, in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(out))
	g.Expect(list.Results).To(ContainElement(HaveField("Severity", function.Warning)))
	again, _, err := run(t, function.CreateSetters, config, got)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(out))
	applied, _, err := run(t, function.ApplySetters, configMapOf(`{tag: "2"}`), got)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(applied).To(ContainSubstring("image: reg.example.com/app:2 # kpt-set: ${registry}/app:${tag}\n"))
}
