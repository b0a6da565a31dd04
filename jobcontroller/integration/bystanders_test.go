package integration

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// label writes a label, as tools do that adopt what others have just created.
func label(t *testing.T, rev *kiln.PackageRevision, value int) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, value)
	NewWithT(t).Expect(admin.Patch(t.Context(), rev, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func TestLabelsWrittenAtAnyMomentHoldNothingUpAndRenderNothingTwice(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	var revs []*kiln.PackageRevision
	for i := range 20 {
		rev := create(t, revision(ns, fmt.Sprintf("web-%d", i), map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}))
		for n := range 12 {
			label(t, rev, n)
		}
		revs = append(revs, rev)
	}
	for _, rev := range revs {
		waitRendered(t, rev)
		jobs, err := jobsOf(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(jobs).To(HaveLen(1), rev.Name)
	}
}

func TestALabelWrittenRightAfterTheCreateDoesNotKeepTheStatusFromBeingWritten(t *testing.T) {
	ns := namespace(t)
	var suspended, published []*kiln.PackageRevision
	for i := range 20 {
		rev := revision(ns, fmt.Sprintf("suspended-%d", i), map[string]string{"Kptfile": kptfile(), "cm.yaml": configMap("cm", "1")})
		suspend := true
		rev.Spec.Suspend = &suspend
		suspended = append(suspended, create(t, rev))
		label(t, rev, 1)

		rev = revision(ns, fmt.Sprintf("published-%d", i), map[string]string{"Kptfile": kptfile(), "cm.yaml": configMap("cm", "1")})
		rev.Spec.Lifecycle = kiln.LifecyclePublished
		published = append(published, create(t, rev))
		label(t, rev, 1)
		label(t, rev, 2)
	}
	for i := range suspended {
		waitFor(t, suspended[i], ContainElement("RenderFinished=False/Suspended"))
		waitFor(t, published[i], ContainElement("RenderFinished=True/NotDraft"))
	}
}

func TestAnIdentityThatIsDeletedMeanwhileIsMadeAgain(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, sleepy(namespace(t), "web", "1"))
	waitRunning(t, rev)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: rev.Namespace, Name: "kiln-renderer"}}
	g.Expect(admin.Delete(t.Context(), account)).To(Succeed())
	g.Eventually(func() error { return admin.Get(t.Context(), client.ObjectKeyFromObject(account), account) }).
		WithTimeout(patience).Should(Succeed())
	waitRendered(t, rev)
}

func TestAQuotaThatRefusesTheSnapshotIsSaidAndItsGrowthStartsTheRender(t *testing.T) {
	ns := namespace(t)
	limit(t, ns, "no-configmaps", "count/configmaps", "0")

	rev := create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}))
	waitFor(t, rev, ContainElement("RenderFinished=False/QuotaExceeded"))
	kubectl(t, ns, "patch", "resourcequota", "no-configmaps", "--type=merge", "-p", `{"spec":{"hard":{"count/configmaps":"10"}}}`)
	waitRendered(t, rev)
}

func TestANamesakeMadeLaterStartsFromNothing(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	rev := create(t, sleepy(ns, "web", "1"))
	waitRunning(t, rev)
	edit(t, rev, "cm.yaml", configMap("cm", "2"))
	g.Expect(admin.Delete(t.Context(), rev)).To(Succeed())
	again := create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "3")}))
	done := waitRendered(t, again)
	g.Expect(text(done, "cm.yaml")).To(And(ContainSubstring(`"3"`), ContainSubstring("namespace: shop")))
	g.Expect(done.Status.Render.Superseded).To(BeZero())
}
