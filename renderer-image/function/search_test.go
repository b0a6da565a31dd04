package function_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

func configMapOf(data string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: " + data
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
