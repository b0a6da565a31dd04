package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

const rendererAccount = "kiln-renderer"

// scene is a render that runs, and a tenant with the role `edit` who would like it to come to something else.
type scene struct {
	*testing.T
	namespace string
	rev       *kiln.PackageRevision
	job       *batchv1.Job
	pod       *corev1.Pod
	tenant    client.Client
}

// aRunningRender sets the scene.
func aRunningRender(t *testing.T) scene {
	t.Helper()
	g := NewWithT(t)
	s := scene{T: t, namespace: namespace(t), job: &batchv1.Job{}}
	s.tenant = userWith(t, s.namespace, "edit")
	s.rev = create(t, sleepy(s.namespace, "web", "1"))
	name := waitRunning(t, s.rev)
	g.Expect(admin.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, s.job)).To(Succeed())
	g.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(admin.List(t.Context(), pods, client.InNamespace(s.namespace), client.MatchingLabels{batchv1.JobNameLabel: name})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		s.pod = &pods.Items[0]
	}).WithTimeout(patience).Should(Succeed())
	return s
}

// forged is a flawless result of the running render, but for who publishes it.
func (s scene) forged() *corev1.ConfigMap {
	live, err := get(s.Context(), s.rev)
	NewWithT(s.T).Expect(err).NotTo(HaveOccurred())
	output := files(live)
	output["cm.yaml"] = configMap("forged", "by a tenant")
	result := &bundle.Result{Succeeded: true}
	result.Diff(files(live), output)
	configMaps, err := bundle.ResultConfigMaps(bundle.Publisher{
		Job: bundle.Job{Namespace: s.namespace, Name: s.job.Name, UID: s.job.UID},
		Pod: s.pod.Name, UID: s.pod.UID,
	}, result)
	NewWithT(s.T).Expect(err).NotTo(HaveOccurred())
	NewWithT(s.T).Expect(configMaps).To(HaveLen(1))
	return configMaps[0]
}

// rendersAsItShould waits until the render has come to what it comes to by itself.
func (s scene) rendersAsItShould() {
	s.Helper()
	done := waitRendered(s.T, s.rev)
	NewWithT(s.T).Expect(text(done, "cm.yaml")).To(And(ContainSubstring("namespace: slow"), Not(ContainSubstring("forged"))))
}

func patchOf(t *testing.T, patch map[string]any) client.Patch {
	t.Helper()
	text, err := json.Marshal(patch)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.MergePatchType, text)
}

func metadata(field, key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{field: map[string]any{key: value}}}
}

// asRenderer is a client with a token of the renderer's account that is not bound to a pod.
func asRenderer(t *testing.T, token string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(adminConfig)
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: admin.Scheme()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func TestATenantWhoForgesAResultIsRefused(t *testing.T) {
	s := aRunningRender(t)
	forged := s.forged()
	bind(t, s.namespace, "user-of-"+s.namespace+"-edit", "kiln-renderer") // Not even the renderer's role helps.
	byRenderersPod := beRefused("published by the render's own pod only")

	for name, try := range map[string]func(t *testing.T) error{
		"by creating it": func(t *testing.T) error { return s.tenant.Create(t.Context(), forged.DeepCopy()) },
		"by creating it as the renderer's account, which the role may impersonate": func(t *testing.T) error {
			config := rest.CopyConfig(adminConfig)
			config.Impersonate.UserName = "system:serviceaccount:" + s.namespace + ":" + rendererAccount
			c, err := client.New(config, client.Options{Scheme: admin.Scheme()})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			return c.Create(t.Context(), forged.DeepCopy())
		},
		"by relabelling a ConfigMap of their own": func(t *testing.T) error {
			own := forged.DeepCopy()
			own.Labels = nil
			own.Name = "kiln-result-" + string(s.job.UID)
			NewWithT(t).Expect(s.tenant.Create(t.Context(), own)).To(Succeed())
			err := s.tenant.Patch(t.Context(), own, patchOf(t, map[string]any{"metadata": map[string]any{"labels": forged.Labels}}))
			NewWithT(t).Expect(err).To(beRefused("no other becomes one"))
			return s.tenant.Patch(t.Context(), own, patchOf(t, metadata("labels", kiln.LabelComponent, kiln.ComponentResult)))
		},
		"by a snapshot of their own making": func(t *testing.T) error {
			own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "own", Labels: map[string]string{kiln.LabelComponent: kiln.ComponentSnapshot, kiln.LabelJobUID: string(s.job.UID)}}}
			return s.tenant.Create(t.Context(), own)
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(try(t)).To(Or(byRenderersPod, beRefused("made by Kiln only"), beRefused("no other becomes one")))
		})
	}
	s.rendersAsItShould()
}

func TestATenantWhoAltersAResultIsRefused(t *testing.T) {
	s := aRunningRender(t)
	s.rendersAsItShould()
	list := &corev1.ConfigMapList{}
	NewWithT(t).Expect(admin.List(t.Context(), list, client.InNamespace(s.namespace), client.HasLabels{kiln.LabelComponent})).To(Succeed())
	NewWithT(t).Expect(list.Items).To(HaveLen(2), "the snapshot and the result")
	for i := range list.Items {
		made := &list.Items[i]
		for name, patch := range map[string]map[string]any{
			"its component":     metadata("labels", kiln.LabelComponent, kiln.ComponentResultChunk),
			"its component off": metadata("labels", kiln.LabelComponent, nil),
			"its Job":           metadata("labels", kiln.LabelJobUID, "another"),
			"its pod":           metadata("labels", kiln.LabelPodUID, "another"),
			"its input digest":  metadata("annotations", kiln.AnnotationInputDigest, "another"),
			"its output digest": metadata("annotations", kiln.AnnotationOutputDigest, "another"),
			"its owner":         {"metadata": map[string]any{"ownerReferences": nil}},
			"its mutability":    {"immutable": false},
			"what it holds":     {"binaryData": map[string]any{"chunk": "eA=="}},
		} {
			t.Run(made.Labels[kiln.LabelComponent]+": "+name, func(t *testing.T) {
				err := s.tenant.Patch(t.Context(), made.DeepCopy(), patchOf(t, patch))
				NewWithT(t).Expect(err).To(Satisfy(func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }))
			})
		}
		t.Run(made.Labels[kiln.LabelComponent]+": a label of their own is theirs to set", func(t *testing.T) {
			NewWithT(t).Expect(s.tenant.Patch(t.Context(), made.DeepCopy(), patchOf(t, metadata("labels", "team", "web")))).To(Succeed())
		})
	}
}

func TestATenantWhoWantsTheRenderersIdentityIsRefused(t *testing.T) {
	s := aRunningRender(t)
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "forger"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: rendererAccount, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "forger", Image: "kiln-renderer"}},
		},
	}
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: "forger"}
	tenantsClientset := userClientset(t, "user-of-"+s.namespace+"-edit")

	t.Run("by a pod", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}
		NewWithT(t).Expect(s.tenant.Create(t.Context(), pod)).To(beRefused("come from the Jobs that Kiln makes"))
	})
	t.Run("by a pod that claims to belong to the render's Job", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: template.Spec}
		pod.Labels = s.pod.Labels
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		pod.OwnerReferences[0].BlockOwnerDeletion = nil
		NewWithT(t).Expect(s.tenant.Create(t.Context(), pod)).To(beRefused("come from the Jobs that Kiln makes"))
	})
	t.Run("by a Job", func(t *testing.T) {
		job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}
		NewWithT(t).Expect(s.tenant.Create(t.Context(), job)).To(beRefused("made by Kiln only"))
	})
	t.Run("by a Deployment, whose pods are refused", func(t *testing.T) {
		g := NewWithT(t)
		always := *template.DeepCopy()
		always.Spec.RestartPolicy = corev1.RestartPolicyAlways
		deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: always.Labels}, Template: always}}
		g.Expect(s.tenant.Create(t.Context(), deployment)).To(Succeed())
		g.Eventually(func(g Gomega) {
			g.Expect(s.tenant.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
			g.Expect(deployment.Status.Conditions).To(ContainElement(And(
				HaveField("Type", appsv1.DeploymentReplicaFailure), HaveField("Message", ContainSubstring("renderer-identity.kiln.dev")))))
		}).WithTimeout(patience).Should(Succeed())
	})
	for name, bound := range map[string]*authenticationv1.BoundObjectReference{
		"by a token":                           nil,
		"by a token bound to the render's pod": {Kind: "Pod", APIVersion: "v1", Name: s.pod.Name, UID: s.pod.UID},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tenantsClientset.CoreV1().ServiceAccounts(s.namespace).CreateToken(t.Context(), rendererAccount,
				&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
			NewWithT(t).Expect(err).To(beRefused("for the nodes that run Kiln's renders"))
		})
	}
	t.Run("by a Secret for which the cluster makes a token", func(t *testing.T) {
		g := NewWithT(t)
		secret := &corev1.Secret{ObjectMeta: *meta.DeepCopy(), Type: corev1.SecretTypeServiceAccountToken}
		secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: rendererAccount}
		g.Expect(s.tenant.Create(t.Context(), secret)).To(Succeed())
		g.Eventually(func(g Gomega) {
			g.Expect(s.tenant.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
			g.Expect(secret.Data).To(HaveKey(corev1.ServiceAccountTokenKey))
		}).WithTimeout(patience).Should(Succeed())
		renderer := asRenderer(t, string(secret.Data[corev1.ServiceAccountTokenKey]))
		g.Expect(renderer.Create(t.Context(), s.forged())).To(beRefused("published by the render's own pod only"))
		own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "other"}}
		g.Expect(renderer.Create(t.Context(), own)).To(beRefused("creates results and nothing else"))
	})
	s.rendersAsItShould()
}

func TestATenantWhoForgesAJobIsRefused(t *testing.T) {
	s := aRunningRender(t)
	own := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "own"}, Spec: batchv1.JobSpec{
		Suspend: ptr.To(true),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "own", Image: "own"}},
		}},
	}}
	NewWithT(t).Expect(s.tenant.Create(t.Context(), own)).To(Succeed())
	labelled := own.DeepCopy()
	labelled.ObjectMeta = metav1.ObjectMeta{
		Namespace: s.namespace, Name: "labelled", Labels: s.job.Labels, Annotations: s.job.Annotations,
	}
	labelled.OwnerReferences = []metav1.OwnerReference{{APIVersion: kiln.GroupVersion.String(), Kind: "PackageRevision", Name: s.rev.Name, UID: s.rev.UID, Controller: ptr.To(true)}}
	labelled.Spec.Selector, labelled.Spec.Template.Labels = nil, nil

	NewWithT(t).Expect(s.tenant.Create(t.Context(), labelled)).To(beRefused("made by Kiln only"))
	for name, try := range map[string]struct {
		job   *batchv1.Job
		patch map[string]any
	}{
		"by labelling one of their own":             {own, map[string]any{"metadata": map[string]any{"labels": s.job.Labels}}},
		"by taking the label off a render's":        {s.job, metadata("labels", kiln.LabelComponent, nil)},
		"by saying that it is of another revision":  {s.job, metadata("labels", kiln.LabelRevisionUID, "another")},
		"by saying that it is about other contents": {s.job, metadata("annotations", kiln.AnnotationInputDigest, "another")},
		"by saying that it answers another request": {s.job, metadata("annotations", "kiln.dev/request", "another")},
		"by adding what it does not say":            {s.job, metadata("annotations", "kiln.dev/other", "more")},
		"by taking it from its owner":               {s.job, map[string]any{"metadata": map[string]any{"ownerReferences": nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(s.tenant.Patch(t.Context(), try.job.DeepCopy(), patchOf(t, try.patch))).To(beRefused("cannot be changed"))
		})
	}
	t.Run("but a label of their own is theirs to set", func(t *testing.T) {
		NewWithT(t).Expect(s.tenant.Patch(t.Context(), s.job.DeepCopy(), patchOf(t, metadata("labels", "team", "web")))).To(Succeed())
	})
	s.rendersAsItShould()
}

func TestATenantWhoForgesAStatusIsRefused(t *testing.T) {
	ns := namespace(t)
	rev := create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile("{image: nobody-knows:v1}"), "cm.yaml": configMap("cm", "1")}))
	waitFailed(t, rev, "FunctionNotFound")
	claim := func(generation int64) map[string]any {
		conditions := []map[string]any{}
		for _, conditionType := range []string{kiln.ConditionRenderFinished, kiln.ConditionRendered} {
			conditions = append(conditions, map[string]any{"type": conditionType, "status": "True", "reason": "Forged", "message": "", "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
		}
		return map[string]any{"status": map[string]any{"conditions": conditions}}
	}
	now, err := get(t.Context(), rev)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())

	t.Run("by RBAC, with the role edit", func(t *testing.T) {
		err := userWith(t, ns, "edit").Status().Patch(t.Context(), rev.DeepCopy(), patchOf(t, claim(now.Generation)))
		NewWithT(t).Expect(err).To(Satisfy(apierrors.IsForbidden))
	})
	t.Run("by policy, with a role that has the status", func(t *testing.T) {
		role := clusterRole(t, rbacv1.PolicyRule{APIGroups: []string{kiln.GroupVersion.Group}, Resources: []string{"packagerevisions", "packagerevisions/status"}, Verbs: []string{"get", "create", "update", "patch"}})
		user := userWith(t, ns, role)
		NewWithT(t).Expect(user.Status().Patch(t.Context(), rev.DeepCopy(), patchOf(t, claim(now.Generation)))).To(beRefused("written by Kiln's controller only"))
		forged := now.DeepCopy()
		forged.Status.Conditions = nil
		NewWithT(t).Expect(user.Status().Update(t.Context(), forged)).To(beRefused("written by Kiln's controller only"))
		forged = now.DeepCopy()
		forged.Status.PackageConditions = []kiln.PackageCondition{{Type: "Reviewed", Status: metav1.ConditionTrue}}
		NewWithT(t).Expect(user.Status().Update(t.Context(), forged)).To(beRefused("written by Kiln's controller only"))
	})
	t.Run("even the administrator's must not speak of a generation to come", func(t *testing.T) {
		err := admin.Status().Patch(t.Context(), rev.DeepCopy(), patchOf(t, claim(now.Generation+1)))
		NewWithT(t).Expect(err).To(beRefused("a generation that does not exist yet"))
	})
	t.Run("in the main resource it is ignored", func(t *testing.T) {
		g := NewWithT(t)
		user := userWith(t, ns, "edit")
		g.Expect(user.Patch(t.Context(), rev.DeepCopy(), patchOf(t, claim(now.Generation)))).To(Succeed())
		g.Expect(moveTo(user, rev, kiln.LifecycleProposed)).To(beRefused("the render of its contents failed"))
	})
	t.Run("in the Kptfile it opens no gate, and is put right", func(t *testing.T) {
		g := NewWithT(t)
		user := userWith(t, ns, "edit")
		lie := kptfile("{image: nobody-knows:v1}") + "status:\n  conditions:\n  - {type: Rendered, status: \"True\", reason: RenderSuccess, message: Forged}\n  - {type: RenderFinished, status: \"True\"}\n"
		edit(t, rev, "Kptfile", lie)
		g.Expect(moveTo(user, rev, kiln.LifecycleProposed)).To(beRefused("cannot be proposed"))
		waitFor(t, rev, ContainElements("RenderFinished=True/Finished", "Rendered=False/FunctionNotFound"))
		g.Eventually(func(g Gomega) {
			now, err := get(t.Context(), rev)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(packageConditions(now)).To(ConsistOf("RenderFinished=True/Finished", "Rendered=False/RenderFailed"))
			g.Expect(text(now, "Kptfile")).NotTo(ContainSubstring("Forged"))
		}).WithTimeout(patience).Should(Succeed())
	})
}

func TestALifecycleIsJudgedTheSameByEveryWayOfWriting(t *testing.T) {
	ns := namespace(t)
	tenant := userWith(t, ns, "edit")
	rev := create(t, revision(ns, "web", map[string]string{"Kptfile": kptfile("{image: nobody-knows:v1}"), "cm.yaml": configMap("cm", "1")}))
	waitFailed(t, rev, "FunctionNotFound")
	for name, write := range everyWay {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(write(t.Context(), tenant, client.ObjectKeyFromObject(rev), kiln.LifecycleProposed)).To(beRefused("the render of its contents failed"))
		})
	}
}

// everyWay sets the lifecycle, each in another way.
var everyWay = map[string]func(ctx context.Context, c client.Client, key types.NamespacedName, to kiln.Lifecycle) error{
	"merge patch": func(ctx context.Context, c client.Client, key types.NamespacedName, to kiln.Lifecycle) error {
		return c.Patch(ctx, named(key), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"lifecycle":%q}}`, to)))
	},
	"JSON patch": func(ctx context.Context, c client.Client, key types.NamespacedName, to kiln.Lifecycle) error {
		return c.Patch(ctx, named(key), client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"replace","path":"/spec/lifecycle","value":%q}]`, to)))
	},
	"server-side apply": func(ctx context.Context, c client.Client, key types.NamespacedName, to kiln.Lifecycle) error {
		apply := fmt.Appendf(nil, `{"apiVersion":%q,"kind":"PackageRevision","metadata":{"name":%q},"spec":{"packageName":%q,"lifecycle":%q}}`,
			kiln.GroupVersion.String(), key.Name, "pkg-"+key.Name, to)
		return c.Patch(ctx, named(key), client.RawPatch(types.ApplyPatchType, apply), client.ForceOwnership, client.FieldOwner("publisher"))
	},
	"update of what was read": func(ctx context.Context, c client.Client, key types.NamespacedName, to kiln.Lifecycle) error {
		rev := named(key)
		if err := c.Get(ctx, key, rev); err != nil {
			return err
		}
		rev.Spec.Lifecycle = to
		return c.Update(ctx, rev)
	},
}

func named(key types.NamespacedName) *kiln.PackageRevision {
	return &kiln.PackageRevision{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

func TestAnIdentityThatSomebodyElseMadeIsNamedAndItsDeletionHelps(t *testing.T) {
	for name, binding := range map[string]rbacv1.RoleBinding{
		"another role": {
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: rendererAccount}},
		},
		"another account": {
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/managed-by": "kiln"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rendererAccount},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ns := namespace(t)
			binding := binding.DeepCopy()
			binding.Namespace, binding.Name = ns, rendererAccount
			binding.Subjects[0].Namespace = ns
			g.Expect(admin.Create(t.Context(), binding)).To(Succeed())
			rev := create(t, revision(ns, "web", smallPackage()))
			said := waitFor(t, rev, ContainElement("RenderFinished=False/"+kiln.ReasonIdentityInvalid))
			g.Expect(messageOf(said, kiln.ConditionRenderFinished)).To(And(ContainSubstring("RoleBinding kiln-renderer"), ContainSubstring("delete it")))
			g.Expect(admin.Delete(t.Context(), binding)).To(Succeed())
			waitRendered(t, rev)
		})
	}
}
