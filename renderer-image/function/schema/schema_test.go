package schema_test

import (
	"encoding/json"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function/schema"
)

// parse reads YAML as the API server would.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(asJSON, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestValidateKnowsKubernetes(t *testing.T) {
	pod := schema.Kind{Version: "v1", Name: "Pod"}
	for name, test := range map[string]struct {
		kind   schema.Kind
		strict bool
		text   string
		fields []string
	}{
		"a valid pod": {pod, true, "{metadata: {name: a, creationTimestamp: null}, spec: {containers: [{name: a, image: b}]}}", nil},
		"a missing field": {
			pod, false, "{spec: {containers: [{image: b}]}}", []string{"spec.containers[0].name"},
		},
		"a wrong type": {pod, false, "{spec: {containers: [{name: 1}]}}", []string{"spec.containers[0].name"}},
		"a port by number and by name": {
			pod, true, "{spec: {containers: [{name: a, livenessProbe: {httpGet: {port: 80}}, readinessProbe: {httpGet: {port: web}}}]}}", nil,
		},
		"a port that is a boolean": {
			pod, false, "{spec: {containers: [{name: a, livenessProbe: {httpGet: {port: true}}}]}}",
			[]string{"spec.containers[0].livenessProbe.httpGet.port"},
		},
		"quantities as numbers and as strings": {pod, true, "{spec: {containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]}}", nil},
		"a field that is not there":            {pod, true, "{spec: {containers: [{name: a}], container: a}}", []string{"spec.container"}},
		"such a field when nobody minds":       {pod, false, "{spec: {containers: [{name: a}], container: a}}", nil},
		"a label that is a number":             {pod, false, "{metadata: {labels: {a: 1}}, spec: {containers: [{name: a}]}}", []string{"metadata.labels.a"}},
		"a time that is none":                  {pod, false, "{metadata: {creationTimestamp: noon}, spec: {containers: [{name: a}]}}", []string{"metadata.creationTimestamp"}},
		"a null that is required":              {pod, false, "{spec: {containers: null}}", []string{"spec.containers"}},
		"a null in a list":                     {pod, false, "{spec: {containers: [null]}}", []string{"spec.containers[0]"}},
		"a schema that refers to itself": {
			schema.Kind{Group: "apiextensions.k8s.io", Version: "v1", Name: "CustomResourceDefinition"}, true,
			"{spec: {group: a, names: {kind: A, plural: as}, scope: Cluster, versions: [{name: v1, served: true, storage: true, " +
				"schema: {openAPIV3Schema: {properties: {a: {properties: {b: {type: [c]}}}}}}}]}}",
			[]string{"spec.versions[0].schema.openAPIV3Schema.properties.a.properties.b.type"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set, err := schema.New(test.strict)
			g.Expect(err).NotTo(HaveOccurred())
			problems, err := set.Validate(test.kind, parse(t, test.text))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(fieldsOf(problems)).To(Equal(test.fields))
		})
	}
}

func fieldsOf(problems []schema.Problem) []string {
	var fields []string
	for _, problem := range problems {
		fields = append(fields, problem.Field)
	}
	return fields
}

func TestAllSchemasOfKubernetesCanBeUsed(t *testing.T) {
	g := NewWithT(t)
	set, err := schema.New(true)
	g.Expect(err).NotTo(HaveOccurred())
	// After an upgrade of devcluster/, go generate brings the schemas up to date.
	module, err := os.ReadFile("../../../devcluster/go.mod")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(module)).To(ContainSubstring("k8s.io/kubernetes " + set.Version() + "\n"))
	kinds := set.Kinds()
	g.Expect(len(kinds)).To(BeNumerically(">", 100))
	for _, kind := range kinds {
		_, err := set.Validate(kind, map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}, "status": map[string]any{}})
		g.Expect(err).NotTo(HaveOccurred(), "%v", kind)
	}
}

const definition = `
spec:
  group: example.com
  names: {kind: Thing}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size, maybe]
            properties:
              size: {type: integer, minimum: 1, exclusiveMinimum: true}
              maybe: {type: string, nullable: true}
              port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              anything: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}
              template: {type: object, x-kubernetes-embedded-resource: true, properties: {a: {type: string}}}
              byName: {type: object, additionalProperties: {type: integer}}
              one: {type: string, oneOf: [{pattern: ^a}, {pattern: ^b}]}
              list: {type: array, items: {type: object, properties: {a: {enum: [x, y]}}}}
              elsewhere: {$ref: "file:///etc/passwd"}
  - name: v2
`

func TestValidateKnowsTheDefinitionsOfThePackage(t *testing.T) {
	for name, test := range map[string]struct {
		spec   string
		fields []string
	}{
		"nothing wrong":               {"{size: 2, maybe: a}", nil},
		"a null that is allowed":      {"{size: 2, maybe: null}", nil},
		"a number at the limit":       {"{size: 1}", []string{"spec.size"}},
		"a missing field":             {"{maybe: a}", []string{"spec.size"}},
		"a port by name":              {"{size: 2, port: web}", nil},
		"a port that is a list":       {"{size: 2, port: []}", []string{"spec.port"}},
		"unknown fields that stay":    {"{size: 2, anything: {b: c}}", nil},
		"an unknown field":            {"{size: 2, b: c}", []string{"spec.b"}},
		"a resource in a resource":    {"{size: 2, template: {apiVersion: v1, kind: A, metadata: {name: a}, a: b}}", nil},
		"its metadata":                {"{size: 2, template: {metadata: {name: 1}}}", []string{"spec.template.metadata.name"}},
		"a value under any name":      {"{size: 2, byName: {a: b}}", []string{"spec.byName.a"}},
		"none of the alternatives":    {"{size: 2, one: c}", []string{"spec.one"}},
		"a value outside of its enum": {"{size: 2, list: [{a: x}, {a: z}]}", []string{"spec.list[1].a"}},
		"a reference is not followed": {"{size: 2, elsewhere: a}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set, err := schema.New(true)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(set.AddDefinition(parse(t, definition))).To(Succeed())
			thing := schema.Kind{Group: "example.com", Version: "v1", Name: "Thing"}
			g.Expect(set.Has(thing)).To(BeTrue())
			g.Expect(set.Has(schema.Kind{Group: "example.com", Version: "v2", Name: "Thing"})).To(BeFalse())
			problems, err := set.Validate(thing, parse(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: "+test.spec+"}"))
			g.Expect(err).NotTo(HaveOccurred())
			for _, field := range test.fields {
				g.Expect(fieldsOf(problems)).To(ContainElement(field))
			}
			g.Expect(len(problems) == 0).To(Equal(len(test.fields) == 0), "%v", problems)
		})
	}
}

func TestADefinitionThatIsNoneIsRefused(t *testing.T) {
	g := NewWithT(t)
	set, err := schema.New(true)
	g.Expect(err).NotTo(HaveOccurred())
	err = set.AddDefinition(parse(t, "spec: {group: a, names: {kind: B}, versions: [{name: v1, schema: {openAPIV3Schema: {maximum: a}}}]}"))
	g.Expect(err).To(MatchError(ContainSubstring("spec.versions[0].schema.openAPIV3Schema")))
}

func FuzzDefinitions(f *testing.F) {
	f.Add(definition, "{spec: {size: 1, list: [{a: 1}]}}")
	f.Add("{spec: {versions: [{schema: {openAPIV3Schema: {pattern: '(', properties: {a: 1}}}}]}}", "{a: b}")
	f.Fuzz(func(t *testing.T, definition, resource string) {
		var d, r map[string]any
		if yaml.Unmarshal([]byte(definition), &d) != nil || yaml.Unmarshal([]byte(resource), &r) != nil {
			return
		}
		set, err := schema.New(true)
		if err != nil {
			t.Fatal(err)
		}
		if set.AddDefinition(d) != nil {
			return
		}
		for _, kind := range set.Kinds() {
			if kind.Group == "example.com" {
				_, _ = set.Validate(kind, r)
			}
		}
	})
}
