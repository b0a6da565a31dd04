package integration

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// limit makes a ResourceQuota and waits until it holds.
func limit(t *testing.T, namespace, name string, what corev1.ResourceName, most string) {
	t.Helper()
	g := NewWithT(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	quota.Spec.Hard = corev1.ResourceList{what: resource.MustParse(most)}
	g.Expect(admin.Create(t.Context(), quota)).To(Succeed())
	g.Eventually(func(g Gomega) {
		now := &corev1.ResourceQuota{}
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(quota), now)).To(Succeed())
		g.Expect(now.Status.Hard).NotTo(BeEmpty())
	}).WithTimeout(patience).Should(Succeed())
}

func TestAQuotaThatRefusesTheJobIsSaidAndItsGrowthStartsTheRender(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	limit(t, ns, "no-jobs", "count/jobs.batch", "0")

	rev := create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}))
	now := waitFor(t, rev, ContainElements("RenderFinished=False/QuotaExceeded", "Reconciling=True/QuotaExceeded"))
	g.Expect(messageOf(now, kiln.ConditionRenderFinished)).To(ContainSubstring("no-jobs"))
	g.Expect(now.Status.Render.Phase).To(Equal(kiln.PhaseScheduled))

	kubectl(t, ns, "patch", "resourcequota", "no-jobs", "--type=merge", "-p", `{"spec":{"hard":{"count/jobs.batch":"5"}}}`)
	waitRendered(t, rev)
}

func TestHarvestedJobsGiveWayWhenTheQuotaForJobsIsUsedUp(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	limit(t, ns, "two-jobs", "count/jobs.batch", "2")

	rev := create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "0")}))
	for _, value := range []string{"1", "2", "3"} {
		waitRendered(t, rev)
		edit(t, rev, "cm.yaml", configMap("cm", value))
	}
	g.Expect(text(waitRendered(t, rev), "cm.yaml")).To(ContainSubstring(`"3"`))
}

func TestARenderClassShapesTheJob(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	rev := revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")})
	rev.Spec.RenderClassName = ptr.To(ns)
	create(t, rev)
	waitFor(t, rev, ContainElement("RenderFinished=False/RenderClassNotFound"))

	class := &kiln.RenderClass{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	class.Spec.ActiveDeadlineSeconds = ptr.To[int64](77)
	class.Spec.Resources = &kiln.RenderResources{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}}
	g.Expect(admin.Create(t.Context(), class)).To(Succeed())
	t.Cleanup(func() { _ = admin.Delete(t.Context(), class) })
	waitRendered(t, rev)

	jobs, err := jobsOf(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(jobs).To(HaveLen(1))
	g.Expect(jobs[0].Spec.ActiveDeadlineSeconds).To(HaveValue(BeEquivalentTo(77)))
	resources := jobs[0].Spec.Template.Spec.Containers[0].Resources
	g.Expect(resources.Requests.Cpu().String()).To(Equal("1500m"))
	g.Expect(resources.Limits.Cpu().String()).To(Equal("1500m"), "a default limit never is below the request")
}

func TestADeadlineIsAFailureOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	class := &kiln.RenderClass{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	class.Spec.ActiveDeadlineSeconds = ptr.To[int64](1)
	g.Expect(admin.Create(t.Context(), class)).To(Succeed())
	rev := sleepy(ns, "web", "1")
	rev.Spec.RenderClassName = ptr.To(ns)
	create(t, rev)
	done := waitFailed(t, rev, kiln.ReasonDeadlineExceeded)
	g.Expect(text(done, "cm.yaml")).To(Equal(configMap("cm", "1")))
}

func TestOutputThatDoesNotFitTheAPIServerIsAFailureOfItsOwn(t *testing.T) {
	for name, character := range map[string]string{
		"more characters than the CRD allows": "x",
		"more bytes than etcd takes":          "€",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			copies := map[string]int{"x": 24, "€": 14}[character]
			rev := create(t, revision(namespace(t), "big", map[string]string{
				"Kptfile": kptfile("{image: starlark:v0.5.0, configPath: grow.yaml}"),
				"cm.yaml": configMap("cm", "1"),
				"grow.yaml": fmt.Sprintf(`apiVersion: fn.kpt.dev/v1alpha1
kind: StarlarkRun
metadata:
  name: grow
source: |
  for i in range(%d):
    ctx.resource_list["items"].append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c%%d" %% i}, "data": {"x": %q * 50000}})
`, copies, character),
			}))
			done := waitFailed(t, rev, kiln.ReasonResultTooLarge)
			g.Expect(text(done, "cm.yaml")).To(Equal(configMap("cm", "1")))
			g.Expect(done.Spec.Resources).To(HaveLen(3))
			g.Expect(packageConditions(done)).To(ConsistOf("RenderFinished=True/Finished", "Rendered=False/RenderFailed"))
		})
	}
}

func TestHistoryLimitsKeepNamespacesTidy(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "0")}))
	for _, value := range []string{"1", "2", "3", "4", "5"} {
		waitRendered(t, rev)
		waitJobsOver(t, rev)
		edit(t, rev, "cm.yaml", configMap("cm", value))
	}
	waitRendered(t, rev)
	jobs, err := jobsOf(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(jobs).To(HaveLen(4), "the last one, and the three that were kept when it started")
}
