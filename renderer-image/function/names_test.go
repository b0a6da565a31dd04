package function_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

func ownKind(kind, fields string) string {
	return "apiVersion: fn.kpt.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: config}\n" + fields
}

// referrers is a package in which much refers to much.
const referrers = `apiVersion: v1
kind: ConfigMap
metadata:
  name: map
  namespace: shop
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # the front
  namespace: shop
  annotations:
    config.kubernetes.io/depends-on: /namespaces/shop/ConfigMap/map, rbac.authorization.k8s.io/ClusterRole/reader,/namespaces/else/ConfigMap/map
spec:
  template:
    spec:
      serviceAccountName: 'robot'
      initContainers:
      - envFrom:
        - configMapRef: {name: map}
      containers:
      - env:
        - valueFrom:
            configMapKeyRef:
              name: map # by name
              key: map
        - name: map
          value: map
      volumes:
      - projected:
          sources:
          - configMap: {name: map}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: robot
  namespace: shop
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: reader
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: robot-reads
  namespace: other
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: reader
subjects:
- kind: ServiceAccount
  name: robot
  namespace: shop
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  namespace: shop
spec:
  scaleTargetRef:
    kind: Deployment
    name: web
---
apiVersion: v1
kind: Pod
metadata:
  name: stranger
  namespace: other
spec:
  volumes:
  - configMap: {name: map}
---
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: shop
`

func TestEnsureNameSubstringLetsReferencesFollow(t *testing.T) {
	g := NewWithT(t)
	documents := strings.Split(referrers, "---\n")
	out, list, err := run(t, function.EnsureNameSubstring, configMapOf("{prepend: dev-}"), documents...)
	g.Expect(err).NotTo(HaveOccurred())
	want := strings.NewReplacer(
		"name: map\n  namespace", "name: dev-map\n  namespace",
		"configMapRef: {name: map}", "configMapRef: {name: dev-map}",
		"          - configMap: {name: map}", "          - configMap: {name: dev-map}",
		"name: map # by name", "name: dev-map # by name",
		"name: web", "name: dev-web", "name: reader", "name: dev-reader", "name: robot", "name: dev-robot",
		"serviceAccountName: 'robot'", "serviceAccountName: 'dev-robot'", "name: stranger", "name: dev-stranger",
		"/namespaces/shop/ConfigMap/map,", "/namespaces/shop/ConfigMap/dev-map,",
		" rbac.authorization.k8s.io/ClusterRole/reader", "rbac.authorization.k8s.io/ClusterRole/dev-reader",
	).Replace(referrers)
	g.Expect(out).To(Equal(want))
	g.Expect(list.Results).To(ContainElement(function.Result{
		Severity: function.Info, Message: `set the value to "dev-map"`,
		ResourceRef: &function.ResourceRef{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "dev-web"},
		Field: &function.Field{
			Path:         "spec.template.spec.containers[0].env[0].valueFrom.configMapKeyRef.name",
			CurrentValue: "map", ProposedValue: "dev-map",
		},
		File: &function.File{Path: "file.yaml", Index: 1},
	}))

	again, list, err := run(t, function.EnsureNameSubstring, configMapOf("{prepend: dev-}"), strings.Split(out, "---\n")...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(out))
	g.Expect(list.Results).To(BeEmpty())
}

func TestEnsureNameSubstring(t *testing.T) {
	named := func(name string) string { return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: " + name + "\n" }
	thing := func(name, field string) string {
		return "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: " + name + "\nspec:\n" + field
	}
	for name, test := range map[string]struct{ config, in, out string }{
		"a name that contains it stays":     {configMapOf("{prepend: prod-}"), named("with-prod-service"), named("with-prod-service")},
		"it goes to the end":                {configMapOf("{append: -prod}"), named("a"), named("a-prod")},
		"its own kind":                      {ownKind("EnsureNameSubstring", "substring: prod-"), named("a"), named("prod-a")},
		"its own kind at the end":           {ownKind("EnsureNameSubstring", "substring: -prod\neditMode: append"), named("a"), named("a-prod")},
		"a name that reads like a number":   {configMapOf(`{append: "1"}`), named(`"2"`), named(`"21"`)},
		"an unknown additional field stays": {ownKind("EnsureNameSubstring", "substring: p-\nadditionalNameFields: [{kind: Thing, path: spec/name}]"), thing("a", "  x: y\n"), thing("p-a", "  x: y\n")},
		"an additional field": {
			ownKind("EnsureNameSubstring", "substring: p-\nadditionalNameFields: [{kind: Thing, path: spec/names}]"),
			thing("a", "  names: b # c\n"), thing("p-a", "  names: p-b # c\n"),
		},
		"an additional field of another kind": {
			ownKind("EnsureNameSubstring", "substring: p-\nadditionalNameFields: [{kind: Other, path: spec/name}]"),
			thing("a", "  name: b\n"), thing("p-a", "  name: b\n"),
		},
		"an additional field in each element": {
			ownKind("EnsureNameSubstring", "substring: p-\nadditionalNameFields: [{path: 'spec/all[]/name'}]"),
			thing("a", "  all:\n  - name: b\n  - name: p-c\n"), thing("p-a", "  all:\n  - name: p-b\n  - name: p-c\n"),
		},
		"an additional field that is made": {
			ownKind("EnsureNameSubstring", "substring: p-\nadditionalNameFields: [{kind: Thing, path: spec/name, create: true}]"),
			thing("a", "  x: y\n"), thing("p-a", "  x: y\n  name: p-\n"),
		},
		"fieldSpecs, as they were called": {
			ownKind("EnsureNameSubstring", "substring: p-\nfieldSpecs: [{kind: Thing, path: spec/name}]"),
			thing("a", "  name: b\n"), thing("p-a", "  name: p-b\n"),
		},
		"a name that an alias stands for": {
			configMapOf("{prepend: p-}"),
			"apiVersion: v1\nkind: Secret\nmetadata:\n  labels: {app: &n a}\n  name: *n\n",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  labels: {app: &n a}\n  name: p-a\n",
		},
		"local configuration is renamed as well": {
			configMapOf("{prepend: p-}"),
			"apiVersion: v1\nkind: Secret\nmetadata:\n  annotations: {config.kubernetes.io/local-config: 'true'}\n  name: a\n",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  annotations: {config.kubernetes.io/local-config: 'true'}\n  name: p-a\n",
		},
		"a name that an annotation holds": {
			configMapOf("{prepend: p-}"),
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: i\n  annotations:\n    nginx.ingress.kubernetes.io/auth-secret: s\n",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: p-s\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: p-i\n  annotations:\n    nginx.ingress.kubernetes.io/auth-secret: p-s\n",
		},
		"the package context keeps its name": {configMapOf("{prepend: p-}"), packageContext("x"), packageContext("x")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, _, err := run(t, function.EnsureNameSubstring, test.config, strings.Split(test.in, "---\n")...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
			again, _, err := run(t, function.EnsureNameSubstring, test.config, strings.Split(out, "---\n")...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(out))
		})
	}
}

func packageContext(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\n  annotations:\n" +
		"    config.kubernetes.io/local-config: \"true\"\ndata:\n  name: " + name + "\n"
}

func TestSetNamePrefix(t *testing.T) {
	named := func(name string) string { return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: " + name + "\n" }
	for name, test := range map[string]struct{ config, in, out string }{
		"a prefix":                                 {configMapOf("{prefix: dev-}"), named("a"), named("dev-a")},
		"a prefix that is there":                   {configMapOf("{prefix: dev-}"), named("dev-a"), named("dev-a")},
		"a prefix that is inside":                  {configMapOf("{prefix: dev-}"), named("a-dev-b"), named("dev-a-dev-b")},
		"its own kind":                             {ownKind("SetNamePrefix", "prefix: dev-"), named("a"), named("dev-a")},
		"an old prefix before a dash":              {configMapOf("{prefix: new, oldPrefix: old}"), named("old-a"), named("new-a")},
		"an old prefix alone":                      {configMapOf("{prefix: new, oldPrefix: old}"), named("old"), named("new")},
		"an old prefix of a longer word":           {configMapOf("{prefix: new, oldPrefix: old}"), named("older"), named("older")},
		"a placeholder and the package's name":     {packageContext("shop"), named("packagename-db"), named("shop-db")},
		"another name than the placeholder":        {packageContext("shop"), named("db"), named("db")},
		"local configuration is left alone":        {configMapOf("{prefix: dev-}"), packageContext("x"), packageContext("x")},
		"a custom resource definition stays":       {configMapOf("{prefix: dev-}"), "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a\n", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a\n"},
		"an API service stays":                     {configMapOf("{prefix: dev-}"), "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata:\n  name: a\n", "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata:\n  name: a\n"},
		"a resource that makes up its name itself": {configMapOf("{prefix: dev-}"), "apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: a\n", "apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, _, err := run(t, function.SetNamePrefix, test.config, test.in)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
		})
	}
}

func TestSetNamePrefixTakesTheOutermostPackagesName(t *testing.T) {
	g := NewWithT(t)
	list := &function.ResourceList{Items: []*function.Item{
		{Object: yaml.MustParse(packageContext("inner")), Path: "inner/package-context.yaml"},
		{Object: yaml.MustParse(packageContext("outer")), Path: "package-context.yaml"},
		{Object: yaml.MustParse(deploymentNamed("packagename")), Path: "web.yaml"},
	}}
	g.Expect(function.SetNamePrefix(t.Context(), list)).To(Succeed())
	g.Expect(list.Items[2].Object.GetName()).To(Equal("outer"))
}

func deploymentNamed(name string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: " + name + "\n"
}

func TestNamesThatWouldBecomeOneAreRefused(t *testing.T) {
	g := NewWithT(t)
	_, _, err := run(t, function.SetNamePrefix, configMapOf("{prefix: dev-}"), deploymentNamed("a"), deploymentNamed("dev-a"))
	g.Expect(err).To(MatchError(ContainSubstring(`the Deployments "a" and "dev-a" would both be called "dev-a"`)))

	// Two of one name may be variants of which only one is used.
	out, _, err := run(t, function.SetNamePrefix, configMapOf("{prefix: dev-}"), deploymentNamed("a"), deploymentNamed("a"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(out, "name: dev-a\n")).To(Equal(2))
}

func TestRenamingManyResourcesDoesNotTakeTheirSquare(t *testing.T) {
	g := NewWithT(t)
	var documents []string
	for i := range 1500 {
		documents = append(documents,
			fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: map-%d\n", i),
			fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: pod-%d\nspec:\n  volumes:\n  - configMap:\n      name: map-%d\n", i, i))
	}
	out, _, err := run(t, function.SetNamePrefix, configMapOf("{prefix: dev-}"), documents...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(out, "name: dev-map-")).To(Equal(3000))
}
