package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// moveTo sets the lifecycle as a user, by a merge patch.
func moveTo(c client.Client, rev *kiln.PackageRevision, lifecycle kiln.Lifecycle) error {
	return patchSpec(c, rev, map[string]any{"lifecycle": lifecycle})
}

func patchSpec(c client.Client, rev *kiln.PackageRevision, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	target := &kiln.PackageRevision{ObjectMeta: metav1.ObjectMeta{Namespace: rev.Namespace, Name: rev.Name}}
	return c.Patch(context.Background(), target, client.RawPatch(types.MergePatchType, patch))
}

// smallPackage is a package that renders in no time.
func smallPackage() map[string]string {
	return map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}
}

// in makes a rendered revision and takes it to a place in the lifecycle.
func in(t *testing.T, rev *kiln.PackageRevision, lifecycle kiln.Lifecycle) *kiln.PackageRevision {
	t.Helper()
	g := NewWithT(t)
	waitRendered(t, create(t, rev))
	way := []kiln.Lifecycle{kiln.LifecycleDraft, kiln.LifecycleProposed, kiln.LifecyclePublished, kiln.LifecycleDeletionProposed}
	for _, next := range way[1:] {
		if rev.Spec.Lifecycle == lifecycle {
			break
		}
		g.Expect(moveTo(admin, rev, next)).To(Succeed())
		rev.Spec.Lifecycle = next
	}
	return rev
}

func TestThePoliciesHaveNoTypeErrors(t *testing.T) {
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		policies := &admissionv1.ValidatingAdmissionPolicyList{}
		g.Expect(admin.List(t.Context(), policies)).To(Succeed())
		g.Expect(policies.Items).To(HaveLen(6))
		for _, policy := range policies.Items {
			g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation), policy.Name)
			g.Expect(policy.Status.TypeChecking).NotTo(BeNil(), policy.Name)
			g.Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty(), policy.Name)
		}
	}).WithTimeout(patience).Should(Succeed())
}

func TestTheLifecycleGoesOnlyWhereItMay(t *testing.T) {
	ns := namespace(t)
	all := []kiln.Lifecycle{kiln.LifecycleDraft, kiln.LifecycleProposed, kiln.LifecyclePublished, kiln.LifecycleDeletionProposed}
	allowed := map[string]bool{
		"Draft>Proposed": true, "Proposed>Draft": true, "Proposed>Published": true,
		"Published>DeletionProposed": true, "DeletionProposed>Published": true,
	}
	for _, from := range all {
		for _, to := range all {
			if from == to {
				continue
			}
			t.Run(fmt.Sprintf("from %s to %s", from, to), func(t *testing.T) {
				g := NewWithT(t)
				rev := revision(ns, "web", smallPackage())
				rev.Name, rev.GenerateName = "", "web-"
				in(t, rev, from)
				err := moveTo(admin, rev, to)
				if allowed[string(from+">"+to)] {
					g.Expect(err).NotTo(HaveOccurred())
					return
				}
				g.Expect(err).To(beRefused(fmt.Sprintf("cannot go from %s to %s: from %s it can go to", from, to, from)))
			})
		}
	}
}

func TestProposingIsRefused(t *testing.T) {
	ns := namespace(t)
	tenant := userWith(t, ns, "edit")

	t.Run("while the contents are being rendered, and says how to wait", func(t *testing.T) {
		g := NewWithT(t)
		rev := create(t, sleepy(ns, "rendering", "1"))
		waitRunning(t, rev)
		g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(beRefused("not rendered yet (Running)", "kubectl wait --namespace="+ns+" --for=condition=Rendered pkgrev/rendering"))
		waitRendered(t, rev)
		g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(Succeed())
	})

	t.Run("after the render failed, and names the failure", func(t *testing.T) {
		g := NewWithT(t)
		rev := create(t, revision(ns, "failed", map[string]string{"Kptfile": kptfile("{image: nobody-knows:v1}"), "cm.yaml": configMap("cm", "1")}))
		waitFailed(t, rev, "FunctionNotFound")
		g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(beRefused("the render of its contents failed (FunctionNotFound)"))
	})

	t.Run("in the same call as an edit, a suspension or another class", func(t *testing.T) {
		g := NewWithT(t)
		rev := create(t, revision(ns, "both", smallPackage()))
		waitRendered(t, rev)
		for _, more := range []map[string]any{
			{"resources": map[string]any{"cm.yaml": configMap("cm", "2")}},
			{"resources": map[string]any{"cm.yaml": nil}},
			{"resources": nil},
			{"suspend": true},
			{"renderClassName": "other"},
			{"readinessGates": []map[string]any{{"conditionType": "x"}}},
		} {
			more["lifecycle"] = "Proposed"
			g.Expect(patchSpec(admin, rev, more)).To(beRefused("must not change anything else"), "%v", more)
		}
	})

	t.Run("right after an edit, before anything was seen of it", func(t *testing.T) {
		g := NewWithT(t)
		rev := create(t, revision(ns, "late", smallPackage()))
		waitRendered(t, rev)
		for i := range 20 {
			edit(t, rev, "cm.yaml", configMap("cm", fmt.Sprint("again ", i)))
			g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(beRefused("cannot be proposed"))
			waitRendered(t, rev)
		}
	})

	t.Run("while a render that was asked for is due", func(t *testing.T) {
		g := NewWithT(t)
		rev := sleepy(ns, "asked", "1")
		waitRendered(t, create(t, rev))
		kubectl(t, ns, "annotate", "pkgrev", "asked", kiln.AnnotationRenderRequestedAt+"=now")
		g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(beRefused("cannot be proposed"))
		waitFor(t, rev, ContainElement("RenderFinished=True/Finished"))
		g.Eventually(func() error { return moveTo(tenant, rev, kiln.LifecycleProposed) }).WithTimeout(patience).Should(Succeed())
	})

	t.Run("while a readiness gate waits for a condition of the Kptfile", func(t *testing.T) {
		g := NewWithT(t)
		rev := revision(ns, "gated", smallPackage())
		rev.Spec.ReadinessGates = []kiln.ReadinessGate{{ConditionType: "Reviewed"}, {ConditionType: "Rendered"}}
		waitRendered(t, create(t, rev))
		g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(beRefused("spec.readinessGates", "True: Reviewed"))
		withCondition := kptfile(setNamespace("shop")) + "status:\n  conditions:\n  - {type: Reviewed, status: \"%s\"}\n"
		edit(t, rev, "Kptfile", fmt.Sprintf(withCondition, "False"))
		waitRendered(t, rev)
		g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(beRefused("True: Reviewed"))
		edit(t, rev, "Kptfile", fmt.Sprintf(withCondition, "True"))
		waitRendered(t, rev)
		g.Expect(moveTo(tenant, rev, kiln.LifecycleProposed)).To(Succeed())
	})
}

func TestNothingOfTheSpecificationChangesOnceItIsProposed(t *testing.T) {
	ns := namespace(t)
	for _, lifecycle := range []kiln.Lifecycle{kiln.LifecycleProposed, kiln.LifecyclePublished, kiln.LifecycleDeletionProposed} {
		t.Run(string(lifecycle), func(t *testing.T) {
			g := NewWithT(t)
			rev := revision(ns, "web", smallPackage())
			rev.Name, rev.GenerateName = "", "web-"
			in(t, rev, lifecycle)
			before, err := get(t.Context(), rev)
			g.Expect(err).NotTo(HaveOccurred())
			for _, change := range []map[string]any{
				{"resources": map[string]any{"cm.yaml": configMap("cm", "2")}},
				{"resources": map[string]any{"cm.yaml": nil}},
				{"resources": map[string]any{"new.yaml": ""}},
				{"resources": nil},
				{"readinessGates": []map[string]any{{"conditionType": "x"}}},
				{"suspend": true},
				{"renderClassName": "other"},
				{"repository": "other"},
				{"workspaceName": nil},
			} {
				g.Expect(patchSpec(admin, rev, change)).To(beRefused("cannot be changed"), "%v", change)
			}
			kubectl(t, ns, "label", "pkgrev", rev.Name, "team=web")
			kubectl(t, ns, "annotate", "pkgrev", rev.Name, kiln.AnnotationRenderRequestedAt+"=now")
			after := waitFor(t, rev, ContainElements("RenderFinished=True/Finished", "Rendered=True/RenderSuccess", "Ready=True/RenderSuccess"))
			g.Expect(after.Spec).To(Equal(before.Spec))
		})
	}
}

func TestAReturnToDraftAllowsEditsAgain(t *testing.T) {
	g := NewWithT(t)
	rev := in(t, revision(namespace(t), "web", smallPackage()), kiln.LifecycleProposed)
	g.Expect(moveTo(admin, rev, kiln.LifecycleDraft)).To(Succeed())
	edit(t, rev, "cm.yaml", configMap("cm", "2"))
	g.Expect(text(waitRendered(t, rev), "cm.yaml")).To(And(ContainSubstring(`"2"`), ContainSubstring("namespace: shop")))
}

func TestPublishingTakesTheApprovalPermission(t *testing.T) {
	ns := namespace(t)
	editor := userWith(t, ns, "edit")
	for role, may := range map[string]bool{"edit": false, "admin": true, "kiln-approve": true} {
		t.Run(role, func(t *testing.T) {
			g := NewWithT(t)
			rev := revision(ns, "web-"+role, smallPackage())
			waitRendered(t, create(t, rev))
			g.Expect(moveTo(editor, rev, kiln.LifecycleProposed)).To(Succeed())
			user := userWith(t, ns, role)
			refused := beRefused("packagerevisions/approval", "kiln-approve")
			if may {
				g.Expect(moveTo(user, rev, kiln.LifecyclePublished)).To(Succeed())
			} else {
				g.Expect(moveTo(user, rev, kiln.LifecyclePublished)).To(refused)
				g.Expect(moveTo(admin, rev, kiln.LifecyclePublished)).To(Succeed())
			}
			g.Expect(moveTo(editor, rev, kiln.LifecycleDeletionProposed)).To(Succeed())
			if may {
				g.Expect(moveTo(user, rev, kiln.LifecyclePublished)).To(Succeed())
			} else {
				g.Expect(moveTo(user, rev, kiln.LifecyclePublished)).To(refused)
			}
		})
	}
}

func TestAPermissionInOneNamespaceIsNoneInAnother(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	rev := in(t, revision(ns, "web", smallPackage()), kiln.LifecycleProposed)
	user := userWith(t, ns, "edit")
	bind(t, namespace(t), "user-of-"+ns+"-edit", "admin")
	g.Expect(moveTo(user, rev, kiln.LifecyclePublished)).To(beRefused("packagerevisions/approval"))
}

func TestOnlyDraftsAreCreatedUnlessOneMayImport(t *testing.T) {
	ns := namespace(t)
	editor, importer := userWith(t, ns, "edit"), userWith(t, ns, "edit", "kiln-import")
	for _, lifecycle := range []kiln.Lifecycle{kiln.LifecycleProposed, kiln.LifecyclePublished, kiln.LifecycleDeletionProposed} {
		t.Run(string(lifecycle), func(t *testing.T) {
			g := NewWithT(t)
			rev := revision(ns, "web", smallPackage())
			rev.Name, rev.GenerateName = "", "web-"
			rev.Spec.Lifecycle = lifecycle
			g.Expect(editor.Create(t.Context(), rev.DeepCopy())).To(beRefused("created as a Draft, not as "+string(lifecycle), "packagerevisions/import"))
			g.Expect(importer.Create(t.Context(), rev)).To(Succeed())
			done := waitFor(t, rev, ContainElement("RenderFinished=True/NotDraft"))
			ready := meta.IsStatusConditionTrue(done.Status.Conditions, kiln.ConditionReady)
			g.Expect(ready).To(Equal(lifecycle != kiln.LifecycleProposed), "what was published elsewhere is nobody's fault")
		})
	}
}

func TestAPublishedRevisionIsDeletedOnlyOnceThatIsProposed(t *testing.T) {
	ns := namespace(t)
	editor, approver := userWith(t, ns, "edit"), userWith(t, ns, "kiln-approve")

	t.Run("one after the other", func(t *testing.T) {
		g := NewWithT(t)
		rev := in(t, revision(ns, "web", smallPackage()), kiln.LifecyclePublished)
		for _, user := range []client.Client{editor, approver, admin} {
			g.Expect(user.Delete(t.Context(), rev.DeepCopy())).To(beRefused("DeletionProposed"))
		}
		g.Expect(editor.DeleteAllOf(t.Context(), &kiln.PackageRevision{}, client.InNamespace(ns))).To(beRefused("DeletionProposed"))
		g.Expect(moveTo(editor, rev, kiln.LifecycleDeletionProposed)).To(Succeed())
		g.Expect(editor.Delete(t.Context(), rev.DeepCopy())).To(beRefused("packagerevisions/approval"))
		g.Expect(approver.Delete(t.Context(), rev.DeepCopy())).To(Succeed())
	})

	t.Run("drafts and proposals go as they are", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(editor.Delete(t.Context(), in(t, revision(ns, "draft", smallPackage()), kiln.LifecycleDraft))).To(Succeed())
		g.Expect(editor.Delete(t.Context(), in(t, revision(ns, "proposed", smallPackage()), kiln.LifecycleProposed))).To(Succeed())
	})
}

func TestANamespaceWithPublishedRevisionsCanBeDeleted(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	in(t, revision(ns, "web", smallPackage()), kiln.LifecyclePublished)
	in(t, revision(ns, "old", smallPackage()), kiln.LifecycleDeletionProposed)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	g.Expect(admin.Delete(t.Context(), space)).To(Succeed())
	g.Eventually(func() bool {
		return apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(space), space))
	}).WithTimeout(patience).Should(BeTrue())
}

func TestUsingARenderClassTakesAPermission(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	class := &kiln.RenderClass{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	g.Expect(admin.Create(t.Context(), class)).To(Succeed())
	t.Cleanup(func() { _ = admin.Delete(context.Background(), class) })
	mayUse := clusterRole(t, rbacv1.PolicyRule{APIGroups: []string{kiln.GroupVersion.Group}, Resources: []string{"renderclasses"}, Verbs: []string{"use"}, ResourceNames: []string{ns}})
	editor, user := userWith(t, ns, "edit"), userWith(t, ns, "edit", mayUse)

	rev := revision(ns, "web", smallPackage())
	rev.Spec.RenderClassName = ptr.To(ns)
	g.Expect(editor.Create(t.Context(), rev.DeepCopy())).To(beRefused("RenderClass \""+ns+"\"", "use"))
	g.Expect(user.Create(t.Context(), rev)).To(Succeed())
	waitRendered(t, rev)
	g.Expect(patchSpec(editor, rev, map[string]any{"resources": map[string]any{"cm.yaml": configMap("cm", "2")}})).To(Succeed(), "who changes something else needs no permission")
	g.Expect(patchSpec(editor, rev, map[string]any{"renderClassName": nil})).To(Succeed())
	g.Expect(patchSpec(editor, rev, map[string]any{"renderClassName": ns})).To(beRefused("use"))
}

func TestARequestThatIsNoSimpleTextIsRefused(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", smallPackage()))
	for _, value := range []string{"naïve", "two\nlines", fmt.Sprintf("%0129d", 1)} {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{kiln.AnnotationRenderRequestedAt: value}}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(admin.Patch(t.Context(), rev.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(beRefused("printable ASCII"))
	}
}
