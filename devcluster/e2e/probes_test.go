package e2e

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func command(words ...string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: words}}
}

func ready(pod *corev1.Pod) bool {
	return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].Ready
}

func TestReadinessFollowsItsProbe(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod(forever, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: command("test", "-e", "/tmp/ready")}
	}))
	g.Eventually(eventMessages(t, namespace)).Should(ContainElement(HavePrefix("Unhealthy: Readiness probe failed")))
	g.Expect(get(t, namespace, "pod")()).To(WithTransform(ready, BeFalse()))
	_, _, err := runIn(t, namespace, "main", "", "touch", "/tmp/ready")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(ready, BeTrue()))
	_, _, err = runIn(t, namespace, "main", "", "rm", "/tmp/ready")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(ready, BeFalse()))
}

func TestAProbeOverTheNetworkReachesItsPort(t *testing.T) {
	g, namespace := setUp(t)
	status, err := shared.Status(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Server).NotTo(BeEmpty())
	config, err := shared.RESTConfig()
	g.Expect(err).NotTo(HaveOccurred())
	port := intstr.Parse(config.Host[len("https://127.0.0.1:"):])
	create(t, g, namespace, shellPod(forever, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].StartupProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}}
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Port: port, Path: "/livez"}}}
	}))
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(ready, BeTrue()))
}

func TestAContainerThatIsNotAliveIsRestarted(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod(forever, func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 2, ProbeHandler: command("false")}
	}))
	g.Eventually(get(t, namespace, "pod")).Should(HaveField("Status.ContainerStatuses", ConsistOf(And(
		HaveField("RestartCount", BeNumerically(">", 0)), HaveField("LastTerminationState.Terminated.ExitCode", BeEquivalentTo(7))))))
	g.Eventually(eventMessages(t, namespace)).Should(ContainElement("Killing: Container main failed liveness probe, will be restarted"))
}

func TestHooksRunAfterTheStartAndBeforeTheEnd(t *testing.T) {
	g, namespace := setUp(t)
	pod := shellPod("until test -e /tmp/hooked; do sleep 0.02; done; echo hooked; trap 'cat /tmp/last; exit 0' TERM; while true; do sleep 0.05; done", func(pod *corev1.Pod) {
		pod.Finalizers = []string{"kiln.dev/e2e"}
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", "/tmp/hooked"}}},
			PreStop:   &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo goodbye > /tmp/last"}}},
		}
	})
	create(t, g, namespace, pod)
	g.Eventually(func() string { return tryLogs(t, namespace) }).Should(Equal("hooked\n"))
	deleteKept(t, g, namespace, func() {
		awaitPhase(t, g, namespace, corev1.PodSucceeded)
		g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{})).To(Equal("hooked\ngoodbye\n"))
	})
}
