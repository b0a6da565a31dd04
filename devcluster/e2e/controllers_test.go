package e2e

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func createJob(t *testing.T, g *WithT, namespace string, job *batchv1.Job) {
	t.Helper()
	job.Name = "job"
	_, err := client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

func jobCondition(t *testing.T, namespace string, kind batchv1.JobConditionType) func() (string, error) {
	return func() (string, error) {
		job, err := client.BatchV1().Jobs(namespace).Get(t.Context(), "job", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for _, c := range job.Status.Conditions {
			if c.Type == kind && c.Status == corev1.ConditionTrue {
				return c.Reason, nil
			}
		}
		return "", nil
	}
}

func podsOf(t *testing.T, namespace string) func() ([]corev1.Pod, error) {
	return func() ([]corev1.Pod, error) {
		list, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
}

func TestAPodFailurePolicyFailsTheJobAtOnce(t *testing.T) {
	g, namespace := setUp(t)
	createJob(t, g, namespace, &batchv1.Job{Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To[int32](6),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: ptr.To("main"), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{17}},
		}}},
		Template: corev1.PodTemplateSpec{Spec: shellPod("exit 17").Spec},
	}})
	g.Eventually(jobCondition(t, namespace, batchv1.JobFailed)).Should(Equal("PodFailurePolicy"))
	g.Expect(podsOf(t, namespace)()).To(HaveLen(1))
}

func TestAFailedPodIsTriedAgainUpToTheBackoffLimit(t *testing.T) {
	g, namespace := setUp(t)
	createJob(t, g, namespace, &batchv1.Job{Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To[int32](1), Template: corev1.PodTemplateSpec{Spec: shellPod("exit 1").Spec},
	}})
	g.Eventually(jobCondition(t, namespace, batchv1.JobFailed)).Should(Equal("BackoffLimitExceeded"))
	g.Expect(podsOf(t, namespace)()).To(HaveLen(2))
}

func TestDeletingAJobInTheBackgroundEndsItsPods(t *testing.T) {
	g, namespace := setUp(t)
	createJob(t, g, namespace, &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: shellPod(forever).Spec}}})
	g.Eventually(podsOf(t, namespace)).Should(ConsistOf(HaveField("Status.Phase", corev1.PodRunning)))
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	g.Expect(client.BatchV1().Jobs(namespace).Delete(t.Context(), "job", options)).To(Succeed())
	g.Eventually(podsOf(t, namespace)).Should(BeEmpty())
}

func TestAFinishedJobGoesAwayAfterItsTime(t *testing.T) {
	g, namespace := setUp(t)
	createJob(t, g, namespace, &batchv1.Job{Spec: batchv1.JobSpec{
		TTLSecondsAfterFinished: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: shellPod("true").Spec},
	}})
	g.Eventually(func() bool {
		_, err := client.BatchV1().Jobs(namespace).Get(t.Context(), "job", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(BeTrue())
}

func TestAPodThatIsTooBigStaysPending(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("true", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("17")}
	}))
	g.Eventually(get(t, namespace, "pod")).Should(HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", corev1.PodScheduled), HaveField("Status", corev1.ConditionFalse), HaveField("Reason", corev1.PodReasonUnschedulable)))))
}

func TestQuotaAndPodSecurityRefuse(t *testing.T) {
	g, namespace := setUp(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}}}
	_, err := client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func(g Gomega) {
		object, err := client.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "quota", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.Status.Hard).NotTo(BeEmpty())
	}).Should(Succeed())
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: shellPod("true").Spec}}}
	_, err = client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("exceeded quota")))

	_, err = client.CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.CoreV1().Pods(namespace).Create(t.Context(), shellPod("true"), metav1.CreateOptions{})
	g.Expect(err).To(MatchError(ContainSubstring(`violates PodSecurity "restricted:latest"`)))
}

func TestARestrictedPodRuns(t *testing.T) {
	g, namespace := setUp(t)
	_, err := client.CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	succeed(t, g, namespace, shellPod("id", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image = "with-user"
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
	}))
}

func TestUsersHaveOnlyWhatRolesGiveThem(t *testing.T) {
	g, namespace := setUp(t)
	config, err := shared.UserConfig("alice", "team")
	g.Expect(err).NotTo(HaveOccurred())
	alice, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = alice.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsForbidden))
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "team"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "team"}}}
	_, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error {
		_, err := alice.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}).Should(Succeed())
	g.Expect(os.ReadFile(filepath.Join(shared.State, "audit.log"))).To(ContainSubstring(`"username":"alice"`))
}
