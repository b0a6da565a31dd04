package function_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

func service(name, app string) string {
	return "apiVersion: v1\nkind: Service\nmetadata:\n  name: " + name + "\n  namespace: shop\nspec:\n  selector:\n    app: " + app + "\n"
}

func TestUpsertResource(t *testing.T) {
	const old = "# kept\n"
	target := func(path string) string {
		return "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  namespace: shop\n  annotations:\n" +
			"    config.kubernetes.io/target-path: " + path + "\nspec:\n  selector:\n    app: new\n"
	}
	for name, test := range map[string]struct {
		config, in, out string
		messages        []string
	}{
		"replaces a resource": {
			service("a", "new"), service("a", "old"), service("a", "new"), []string{"replaced the resource"},
		},
		"inserts a resource": {
			service("b", "new"), service("a", "old"), service("a", "old") + "---\n" + service("b", "new"), []string{"inserted the resource"},
		},
		"leaves what means the same as it is": {
			service("a", "'old'"), old + service("a", "old"), old + service("a", "old"), nil,
		},
		"takes another version for the same resource": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n",
			"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata:\n  name: a\n",
			"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n", []string{"replaced the resource"},
		},
		"takes another group for another resource": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n",
			"apiVersion: example.com/v1\nkind: Deployment\nmetadata:\n  name: a\n",
			"apiVersion: example.com/v1\nkind: Deployment\nmetadata:\n  name: a\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n",
			[]string{"inserted the resource"},
		},
		"replaces in the file that is asked for": {
			target("file.yaml"), service("a", "old"), service("a", "new"), []string{"replaced the resource"},
		},
		"inserts into the file that is asked for": {
			target("other.yaml"), service("a", "old"), service("a", "old") + "---\n" + service("a", "new"), []string{"inserted the resource"},
		},
		"takes the items of a list": {
			"apiVersion: v1\nkind: List\nmetadata: {name: l}\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- {apiVersion: v1, kind: Secret, metadata: {name: t}}\n",
			service("a", "old"),
			service("a", "old") + "---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: t}}\n",
			[]string{"inserted the resource", "inserted the resource"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, list, err := run(t, function.UpsertResource, test.config, test.in)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
			var messages []string
			for _, result := range list.Results {
				g.Expect(result.ResourceRef).NotTo(BeNil())
				messages = append(messages, result.Message)
			}
			g.Expect(messages).To(Equal(test.messages))
		})
	}
}

func TestUpsertResourcePutsANewResourceWhereItIsAskedTo(t *testing.T) {
	g := NewWithT(t)
	_, list, err := run(t, function.UpsertResource,
		"apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  annotations: {config.kubernetes.io/target-path: sub/a.yaml}\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Items).To(HaveLen(1))
	g.Expect(list.Items[0].Path).To(Equal("sub/a.yaml"))
	g.Expect(list.Items[0].Index).To(BeNumerically("<", 0))
	g.Expect(list.Items[0].Object.MustString()).To(Equal("apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n"))
}

func TestRemoveLocalConfigResources(t *testing.T) {
	marked := func(kind, value string) string {
		return "apiVersion: kpt.dev/v1\nkind: " + kind + "\nmetadata:\n  name: a\n  annotations:\n    config.kubernetes.io/local-config: " + value + "\n"
	}
	for name, test := range map[string]struct {
		in      string
		removed bool
	}{
		"marked as local":                     {marked("Thing", `"true"`), true},
		"marked as local without the quotes":  {marked("Thing", "true"), true},
		"marked as local in capitals":         {marked("Thing", `"TRUE"`), true},
		"marked as not local":                 {marked("Thing", `"false"`), false},
		"marked with something else":          {marked("Thing", `"yes"`), false},
		"not marked":                          {deployment, false},
		"a Kptfile, without which nothing is": {marked("Kptfile", `"true"`), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, list, err := run(t, function.RemoveLocalConfigResources, "", test.in)
			g.Expect(err).NotTo(HaveOccurred())
			if !test.removed {
				g.Expect(list.Items).To(HaveLen(1))
				g.Expect(list.Results).To(HaveLen(1))
				return
			}
			g.Expect(list.Items).To(BeEmpty())
			g.Expect(list.Results).To(HaveLen(2))
			g.Expect(list.Results[0]).To(And(
				HaveField("Message", "removed the resource"), HaveField("ResourceRef.Name", "a"), HaveField("File.Path", "file.yaml")))
		})
	}
}
