package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// forever is a script that runs until SIGTERM and then exits with 7.
const forever = "trap 'echo ending; exit 7' TERM; echo up; while true; do sleep 0.05; done"

func TestInitContainersRunInTheirOrderBeforeTheOthers(t *testing.T) {
	g, namespace := setUp(t)
	output := succeed(t, g, namespace, shellPod("cat /v/order", func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{shell("a", "echo a >> /v/order"), shell("b", "echo b >> /v/order")}
	}, volume("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeMount{MountPath: "/v"})))
	g.Expect(output).To(Equal("a\nb\n"))
	pod, err := get(t, namespace, "pod")()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pod.Status.InitContainerStatuses).To(HaveEach(And(HaveField("Ready", true), HaveField("State.Terminated.Reason", "Completed"))))
	g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodInitialized), HaveField("Status", corev1.ConditionTrue))))
}

func TestAFailedInitContainerFailsThePod(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("true", func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{shell("a", "exit 4"), shell("b", "true")}
	}))
	status := awaitPhase(t, g, namespace, corev1.PodFailed).Status
	g.Expect(status.InitContainerStatuses[0].State.Terminated.ExitCode).To(BeEquivalentTo(4))
	g.Expect(status.InitContainerStatuses[1].State.Waiting.Reason).To(Equal("PodInitializing"))
	g.Expect(status.ContainerStatuses[0].State.Waiting.Reason).To(Equal("PodInitializing"))
}

func TestASidecarRunsBesideTheContainersAndEndsAfterThem(t *testing.T) {
	g, namespace := setUp(t)
	succeed(t, g, namespace, shellPod("until test -e /v/up; do sleep 0.02; done", func(pod *corev1.Pod) {
		sidecar := shell("sidecar", "touch /v/up; "+forever)
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []corev1.Container{sidecar}
	}, volume("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeMount{MountPath: "/v"})))
	pod, err := get(t, namespace, "pod")()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pod.Status.InitContainerStatuses[0].State.Terminated.ExitCode).To(BeEquivalentTo(7))
}

func TestARunningPodIsReady(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod(forever))
	status := awaitPhase(t, g, namespace, corev1.PodRunning).Status
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", kind), HaveField("Status", corev1.ConditionTrue))))
	}
	c := status.ContainerStatuses[0]
	g.Expect(c.Ready).To(BeTrue())
	g.Expect(c.Started).To(HaveValue(BeTrue()))
	g.Expect(c.ContainerID).To(HavePrefix("devcluster://"))
	g.Expect(c.ImageID).To(HavePrefix("devcluster://sha256:"))
	g.Eventually(eventMessages(t, namespace)).Should(ContainElements(
		HavePrefix("Scheduled: Successfully assigned"), `Pulled: Container image "shell" already present on machine`,
		"Created: Container created", "Started: Container started"))
}

func TestTheExitCodeDecidesThePodsPhase(t *testing.T) {
	cases := map[string]struct {
		script string
		phase  corev1.PodPhase
		code   int
		reason string
	}{
		"success":           {"exit 0", corev1.PodSucceeded, 0, "Completed"},
		"failure":           {"exit 42", corev1.PodFailed, 42, "Error"},
		"death of a signal": {"sh -c 'kill -9 $$$$'", corev1.PodFailed, 137, "Error"},
		"another's success": {"exit 0; # the other one fails", corev1.PodFailed, 0, "Completed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			create(t, g, namespace, shellPod(c.script, func(pod *corev1.Pod) {
				if strings.Contains(c.script, "other") {
					pod.Spec.Containers = append(pod.Spec.Containers, shell("other", "exit 1"))
				}
			}))
			terminated := awaitPhase(t, g, namespace, c.phase).Status.ContainerStatuses[0].State.Terminated
			g.Expect(terminated.ExitCode).To(BeEquivalentTo(c.code))
			g.Expect(terminated.Reason).To(Equal(c.reason))
			g.Expect(terminated.FinishedAt.Time).NotTo(BeTemporally("<", terminated.StartedAt.Time))
		})
	}
}

func TestTerminationMessages(t *testing.T) {
	cases := map[string]struct {
		path, script, message string
		policy                corev1.TerminationMessagePolicy
	}{
		"come from the file":                  {"/dev/termination-log", "echo said > /dev/termination-log; exit 1", "said\n", corev1.TerminationMessageReadFile},
		"come from a file elsewhere":          {"/var/lib/message", "echo said > /var/lib/message", "said\n", corev1.TerminationMessageReadFile},
		"come from the output after an error": {"/dev/termination-log", "echo this >&2; echo and that >&2; exit 1", "this\nand that\n", corev1.TerminationMessageFallbackToLogsOnError},
		"do not come from it otherwise":       {"/dev/termination-log", "echo out", "", corev1.TerminationMessageFallbackToLogsOnError},
		"are bounded":                         {"/dev/termination-log", "head -c 9000 /dev/zero | tr '\\0' x > /dev/termination-log", strings.Repeat("x", 4096), corev1.TerminationMessageReadFile},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			create(t, g, namespace, shellPod(c.script, func(pod *corev1.Pod) {
				pod.Spec.Containers[0].TerminationMessagePath, pod.Spec.Containers[0].TerminationMessagePolicy = c.path, c.policy
			}))
			g.Eventually(get(t, namespace, "pod")).Should(WithTransform(phase, BeElementOf(corev1.PodSucceeded, corev1.PodFailed)))
			pod, err := get(t, namespace, "pod")()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Status.ContainerStatuses[0].State.Terminated.Message).To(Equal(c.message))
		})
	}
}

func TestAFailingContainerIsRestartedWithGrowingPauses(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("echo run >> /v/runs; echo this is $(wc -l < /v/runs); test $(wc -l < /v/runs) -ge 3", func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}, volume("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeMount{MountPath: "/v"})))
	pod := awaitPhase(t, g, namespace, corev1.PodSucceeded)
	g.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeEquivalentTo(2))
	g.Expect(pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode).To(BeEquivalentTo(1))
	g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{})).To(Equal("this is 3\n"))
	g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{Previous: true})).To(Equal("this is 2\n"))
	g.Eventually(eventMessages(t, namespace)).Should(ContainElement(HavePrefix("BackOff: Back-off restarting failed container main")))
}

func TestAPodThatIsAlwaysRestartedShowsCrashLoopBackOff(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("exit 1", func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }))
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(waitingReason, Equal("CrashLoopBackOff")))
	pod, err := get(t, namespace, "pod")()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
}

func TestActiveDeadlineSecondsEndsThePod(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod(forever, func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }))
	pod := awaitPhase(t, g, namespace, corev1.PodFailed)
	g.Expect(pod.Status.Reason).To(Equal("DeadlineExceeded"))
	g.Expect(pod.Status.ContainerStatuses[0].State.Terminated.ExitCode).To(BeEquivalentTo(7))
}

func TestDeletionAsksPolitelyAndReportsTheEnd(t *testing.T) {
	g, namespace := setUp(t)
	pod := shellPod(forever)
	pod.Finalizers = []string{"kiln.dev/e2e"} // keeps the ended pod for a look at it
	create(t, g, namespace, pod)
	g.Eventually(func() string { return tryLogs(t, namespace) }).Should(ContainSubstring("up"))
	deleteKept(t, g, namespace, func() {
		status := awaitPhase(t, g, namespace, corev1.PodFailed).Status
		g.Expect(status.ContainerStatuses[0].State.Terminated.ExitCode).To(BeEquivalentTo(7))
		g.Eventually(eventMessages(t, namespace)).Should(ContainElement("Killing: Stopping container main"))
	})
}

// deleteKept deletes a pod that a finalizer keeps, lets look see what becomes of it, and lets it go.
func deleteKept(t *testing.T, g *WithT, namespace string, look func()) {
	t.Helper()
	g.Expect(client.CoreV1().Pods(namespace).Delete(t.Context(), "pod", metav1.DeleteOptions{})).To(Succeed())
	look()
	_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "pod", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	awaitGone(t, g, namespace)
}

func tryLogs(t *testing.T, namespace string) string {
	raw, _ := client.CoreV1().Pods(namespace).GetLogs("pod", &corev1.PodLogOptions{}).DoRaw(t.Context())
	return string(raw)
}

// processesWith counts the processes of the machine whose command line has a marker.
func processesWith(marker string) int {
	count := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), marker) && !strings.Contains(string(line), "e2e.test") {
			count++
		}
	}
	return count
}

func TestNothingAContainerStartedOutlivesIt(t *testing.T) {
	cases := map[string]struct {
		script string
		grace  int64
	}{
		"children in the background":          {"sleep 1000.MARK & sleep 1000.MARK & trap 'exit 0' TERM; echo up; wait", 30},
		"daemons with a session of their own": {"setsid sh -c 'sleep 1000.MARK & sleep 1000.MARK' & trap 'exit 0' TERM; sleep 1000.MARK & echo up; wait", 30},
		"a program that ignores SIGTERM":      {"trap '' TERM; sleep 1000.MARK & echo up; while true; do sleep 1000.MARK; done", 1},
		"a program without a handler":         {"sleep 1000.MARK & sleep 1000.MARK & echo up; wait", 1},
	}
	number := 0
	for name, c := range cases {
		number++
		marker := fmt.Sprintf("1000.%d%d", os.Getpid(), number)
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			create(t, g, namespace, shellPod(strings.ReplaceAll(c.script, "1000.MARK", marker)))
			g.Eventually(func() string { return tryLogs(t, namespace) }).Should(ContainSubstring("up"))
			g.Eventually(func() int { return processesWith(marker) }).Should(BeNumerically(">", 2))
			g.Expect(client.CoreV1().Pods(namespace).Delete(t.Context(), "pod", metav1.DeleteOptions{GracePeriodSeconds: &c.grace})).To(Succeed())
			awaitGone(t, g, namespace)
			g.Expect(processesWith(marker)).To(BeZero())
		})
	}
}

func TestAForcedDeletionKillsAtOnce(t *testing.T) {
	g, namespace := setUp(t)
	marker := fmt.Sprintf("1000.%d0", os.Getpid())
	create(t, g, namespace, shellPod("trap '' TERM; echo up; while true; do sleep "+marker+"; done"))
	g.Eventually(func() string { return tryLogs(t, namespace) }).Should(ContainSubstring("up"))
	g.Expect(client.CoreV1().Pods(namespace).Delete(t.Context(), "pod", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})).To(Succeed())
	g.Eventually(func() int { return processesWith(marker) }).Should(BeZero())
}

func TestAPodThatIsDeletedBeforeItRunsGoesAway(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("true", volume("v",
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "never"}}},
		corev1.VolumeMount{MountPath: "/v"})))
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(waitingReason, Equal("ContainerCreating")))
	g.Expect(client.CoreV1().Pods(namespace).Delete(t.Context(), "pod", metav1.DeleteOptions{})).To(Succeed())
	awaitGone(t, g, namespace)
}

func awaitGone(t *testing.T, g *WithT, namespace string) {
	t.Helper()
	g.Eventually(func() bool {
		_, err := get(t, namespace, "pod")()
		return apierrors.IsNotFound(err)
	}).Should(BeTrue(), "the pod stays")
}
