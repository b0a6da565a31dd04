package function_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

const brokenController = `apiVersion: v1
kind: ReplicationController
metadata:
  name: bob
spec:
  replicas: asd
  selector: {app: nginx}
  templates: {}
`

func TestKubeconformReportsWhereAndWhat(t *testing.T) {
	g := NewWithT(t)
	_, list, err := run(t, function.Kubeconform, configMapOf(`{strict: "true"}`), deploymentNamed("web")+"spec:\n  selector: {}\n  template: {}\n",
		brokenController)
	g.Expect(errors.Is(err, function.ErrFailed)).To(BeTrue())
	ref := &function.ResourceRef{APIVersion: "v1", Kind: "ReplicationController", Name: "bob"}
	file := &function.File{Path: "file.yaml", Index: 1}
	g.Expect(list.Results).To(Equal([]function.Result{
		{
			Severity: function.Error, Message: `spec.replicas must be of type integer: "string"`, ResourceRef: ref,
			Field: &function.Field{Path: "spec.replicas"}, File: file,
		},
		{
			Severity: function.Error, Message: "spec.templates is not a field of the schema", ResourceRef: ref,
			Field: &function.Field{Path: "spec.templates"}, File: file,
		},
	}))
}

func TestKubeconform(t *testing.T) {
	const custom = "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n"
	const defined = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n" +
		"spec:\n  group: example.com\n  names: {kind: Thing, plural: things}\n  scope: Namespaced\n  versions:\n" +
		"  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, required: [spec]}}}\n"
	local := func(document string) string {
		return document + "  annotations: {config.kubernetes.io/local-config: 'true'}\n"
	}
	configMap := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + value + "}\n"
	}
	for name, test := range map[string]struct {
		config    string
		documents []string
		says      []string
	}{
		"no configuration":                        {"", []string{configMap("b")}, nil},
		"an unknown kind":                         {"", []string{custom}, []string{"add its CustomResourceDefinition"}},
		"an unknown kind that is let through":     {configMapOf(`{ignore_missing_schemas: "true"}`), []string{custom}, nil},
		"an unknown kind that is skipped":         {configMapOf("{skip_kinds: 'Other, Thing'}"), []string{custom}, nil},
		"a kind that is skipped in full":          {configMapOf("{skip_kinds: 'example.com/v1/Thing'}"), []string{custom}, nil},
		"skipped kinds are case-sensitive":        {configMapOf("{skip_kinds: thing}"), []string{custom}, []string{"no schema for Thing"}},
		"local configuration of an unknown kind":  {"", []string{local(custom)}, nil},
		"a Kptfile":                               {"", []string{"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: a}\n"}, nil},
		"a kind that the package defines":         {"", []string{custom, defined}, []string{"spec is required"}},
		"a definition that cannot be used":        {"", []string{defined[:len(defined)-len("type: object, required: [spec]}}}\n")] + "maximum: a}}}\n"}, []string{"its schema cannot be used", "maximum"}},
		"a value that is a number":                {"", []string{configMap("1")}, []string{"data.a must be of type string"}},
		"a value that kubectl takes for a switch": {"", []string{configMap("yes")}, []string{"data.a must be of type string"}},
		"the same in quotes":                      {"", []string{configMap("'yes'")}, nil},
		"a value that looks like a time":          {"", []string{configMap("2024-01-01T00:00:00Z")}, nil},
		"a value that an alias stands for":        {"", []string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: &n a}\ndata: {a: *n}\n"}, nil},
		"an older version of a kind":              {"", []string{"apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\n"}, []string{"no schema for Ingress of extensions/v1beta1"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, list, err := run(t, function.Kubeconform, test.config, test.documents...)
			if test.says == nil {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(list.Results).To(BeEmpty())
				return
			}
			g.Expect(errors.Is(err, function.ErrFailed)).To(BeTrue())
			for _, says := range test.says {
				g.Expect(list.Results).To(ContainElement(And(
					HaveField("Severity", function.Error), HaveField("Message", ContainSubstring(says)))))
			}
		})
	}
}
