package integration

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

func TestAKilledControllersSuccessorFinishesTwentyRenders(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	const renders = 20
	var revs []*kiln.PackageRevision
	for i := range renders {
		revs = append(revs, create(t, sleepy(ns, fmt.Sprintf("web-%d", i), "x")))
	}
	jobs := map[string]types.UID{}
	g.Eventually(func(g Gomega) {
		for _, rev := range revs {
			found, err := jobsOf(t.Context(), rev)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(HaveLen(1))
			jobs[rev.Name] = found[0].UID
		}
	}).WithTimeout(patience).Should(Succeed())

	theController.kill()
	replaceController(t)

	for _, rev := range revs {
		done := waitRendered(t, rev)
		g.Expect(text(done, "cm.yaml")).To(ContainSubstring("namespace: slow"))
		found, err := jobsOf(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found).To(HaveLen(1), "nothing is rendered twice")
		g.Expect(found[0].UID).To(Equal(jobs[rev.Name]))
	}
}

func TestAControllerKilledBetweenApplyingAndSayingSoIsFollowedUp(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, sleepy(namespace(t), "web", "1"))
	waitRunning(t, rev)
	theController.kill()
	before, err := get(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())

	// The Job publishes without a controller; a new one renders, and its status is taken back to what a controller that
	// died right after its patch of the contents would have left.
	replaceController(t)
	done := waitRendered(t, rev)
	theController.kill()
	status := before.Status.DeepCopy()
	done.Status = *status
	g.Expect(admin.Status().Update(t.Context(), done)).To(Succeed())
	replaceController(t)

	again := waitRendered(t, rev)
	g.Expect(again.Status.Render.JobUID).To(Equal(before.Status.Render.JobUID), "the render goes on to its end")
	g.Expect(again.Status.Render.Superseded).To(BeZero())
	jobs, err := jobsOf(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(jobs).To(HaveLen(1))
}

func TestEditsWhileNoControllerRunsAreRenderedByTheNext(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, sleepy(namespace(t), "web", "first"))
	first := waitRunning(t, rev)
	theController.kill()
	edit(t, rev, "cm.yaml", configMap("cm", "second"))
	replaceController(t)
	done := waitRendered(t, rev)
	g.Expect(text(done, "cm.yaml")).To(ContainSubstring("second"))
	g.Expect(done.Status.Render.Superseded).To(BeEquivalentTo(1))
	g.Expect(done.Status.Render.JobName).NotTo(Equal(first))
}

func TestAStandbyTakesOverWhenTheLeaderDies(t *testing.T) {
	standby, err := startController()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	rev := create(t, sleepy(namespace(t), "web", "1"))
	waitRunning(t, rev)
	theController.kill()
	theController = standby
	waitRendered(t, rev)
}

func TestAJobThatSomebodyDeletesIsStartedOver(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, sleepy(namespace(t), "web", "1"))
	first := waitRunning(t, rev)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: rev.Namespace, Name: first}}
	g.Expect(admin.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	done := waitRendered(t, rev)
	g.Expect(done.Status.Render.Attempt).To(BeEquivalentTo(2))
	g.Expect(done.Status.Render.JobName).NotTo(Equal(first))
	g.Expect(done.Status.Render.Superseded).To(BeZero())
}

func TestARenderWhosePodsKeepDyingIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, sleepy(namespace(t), "web", "1"))
	first := waitRunning(t, rev)
	killPods(t, rev.Namespace, first, 2)
	g.Eventually(func(g Gomega) {
		now, err := get(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(now.Status.Render.Attempt).To(BeEquivalentTo(2))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	waitRendered(t, rev)
}

// killPods kills the processes of a Job's pods, as a machine out of memory does, until that many pods have failed.
func killPods(t *testing.T, namespace, job string, pods int) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		for _, pid := range rendererProcesses(job) {
			kill(pid)
		}
		list := &corev1.PodList{}
		g.Expect(admin.List(t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job})).To(Succeed())
		failed := 0
		for _, pod := range list.Items {
			if pod.Status.Phase == corev1.PodFailed {
				failed++
			}
		}
		g.Expect(failed).To(BeNumerically(">=", pods))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
}
