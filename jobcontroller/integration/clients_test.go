package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// manifest writes a revision into a file, as people keep it.
func manifest(t *testing.T, rev *kiln.PackageRevision) string {
	t.Helper()
	g := NewWithT(t)
	rev.APIVersion, rev.Kind = kiln.GroupVersion.String(), "PackageRevision"
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": rev.APIVersion, "kind": rev.Kind,
		"metadata": map[string]any{"name": rev.Name},
		"spec":     rev.Spec,
	})
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), rev.Name+".yaml")
	g.Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	return path
}

func TestClientSideApplyOfTheSourceIsAReplay(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	rev := revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")})
	path := manifest(t, rev)
	kubectl(t, ns, "apply", "-f", path)
	first := waitRendered(t, rev)

	kubectl(t, ns, "apply", "-f", path)
	g.Eventually(func(g Gomega) {
		now, err := get(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(now.Status.Render.Replayed).To(BeEquivalentTo(1))
	}).WithTimeout(patience).Should(Succeed())
	again := waitRendered(t, rev)
	g.Expect(again.Spec.Resources).To(Equal(first.Spec.Resources))
}

func TestServerSideApplyConflictsWithWhatWasRendered(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	rev := revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")})
	path := manifest(t, rev)
	kubectl(t, ns, "apply", "--server-side", "-f", path)
	waitRendered(t, rev)

	c := command("kubectl", "--namespace", ns, "apply", "--server-side", "-f", path)
	c.Stderr = nil
	out, err := c.CombinedOutput()
	g.Expect(err).To(HaveOccurred())
	g.Expect(string(out)).To(And(ContainSubstring("conflict"), ContainSubstring("kiln-controller")))
	kubectl(t, ns, "apply", "--server-side", "--force-conflicts", "-f", path)
	waitRendered(t, rev)
}

func TestAnAgentThatHealsItselfCostsReplaysAndNoJobs(t *testing.T) {
	const heals = 5
	for name, apply := range map[string][]string{
		"by client-side apply": {"apply", "-f"},
		"by server-side apply": {"apply", "--server-side", "--force-conflicts", "--field-manager=agent", "-f"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ns := namespace(t)
			rev := revision(ns, "web", smallPackage())
			source := append(apply, manifest(t, rev))
			kubectl(t, ns, source...)
			first := waitRendered(t, rev)
			for i := range heals {
				kubectl(t, ns, source...)
				g.Eventually(func(g Gomega) {
					now, err := get(t.Context(), rev)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(now.Status.Render.Replayed).To(BeEquivalentTo(i + 1))
				}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
				g.Expect(waitRendered(t, rev).Spec.Resources).To(Equal(first.Spec.Resources))
			}
			now, err := get(t.Context(), rev)
			g.Expect(err).NotTo(HaveOccurred())
			jobs, err := jobsOf(t.Context(), now)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(jobs).To(HaveLen(1))

			g.Expect(moveTo(admin, rev, kiln.LifecycleProposed)).To(Succeed())
			c := command("kubectl", append([]string{"--namespace", ns}, source...)...)
			c.Stderr = nil
			out, err := c.CombinedOutput()
			g.Expect(err).To(HaveOccurred())
			g.Expect(string(out)).To(ContainSubstring("return spec.lifecycle to Draft first"))
		})
	}
}

func TestKubectlPatchAndEditChangeADraft(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	rev := create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}))
	waitRendered(t, rev)

	kubectl(t, ns, "patch", "pkgrev", "web", "--type=merge", "-p", `{"spec":{"resources":{"new.yaml":"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: new\n"}}}`)
	g.Expect(text(waitRendered(t, rev), "new.yaml")).To(ContainSubstring("namespace: shop"))

	editor := filepath.Join(t.TempDir(), "editor")
	g.Expect(os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/namespace: shop}/namespace: store}/' \"$1\"\n"), 0o700)).To(Succeed())
	t.Setenv("KUBE_EDITOR", editor)
	kubectl(t, ns, "edit", "pkgrev", "web")
	done := waitRendered(t, rev)
	g.Expect(text(done, "new.yaml")).To(ContainSubstring("namespace: store"))
	g.Expect(text(done, "cm.yaml")).To(ContainSubstring("namespace: store"))
}

func TestKubectlWaitAndExplain(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}))
	g.Expect(kubectl(t, ns, "wait", "--for=condition=Rendered", "--timeout=60s", "pkgrev/web")).To(ContainSubstring("condition met"))

	explained := kubectl(t, ns, "explain", "packagerevisions.kiln.dev", "--recursive")
	g.Expect(explained).To(ContainSubstring("readinessGates"))
	for _, kind := range []string{"packagerevisions.kiln.dev.spec", "packagerevisions.kiln.dev.status.render", "packagerevisions.kiln.dev.status.lastOutcome", "renderclasses.kiln.dev.spec"} {
		text := kubectl(t, ns, "explain", kind)
		g.Expect(text).NotTo(ContainSubstring("<no description>"), "a field of %s is not explained:\n%s", kind, text)
	}
}

func TestTheAPIRefusesPathsAndSizesThatCannotBeRendered(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"an absolute path":         {map[string]string{"/etc/passwd": ""}, "must be relative"},
		"a path that leaves":       {map[string]string{"a/../../b": ""}, "must be relative"},
		"an empty segment":         {map[string]string{"a//b": ""}, "must be relative"},
		"a control character":      {map[string]string{"a\x00b": ""}, "control characters"},
		"an empty path":            {map[string]string{"": ""}, "must be relative"},
		"a folder":                 {map[string]string{"a/": ""}, "must be relative"},
		"one byte more than a MiB": {map[string]string{"a": strings.Repeat("x", 1<<19), "b": strings.Repeat("x", 1<<19+1)}, "1048576 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), revision("default", "refused", test.files))
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.says)))
		})
	}
}
