package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kiln-dev/kiln/devcluster/cluster"
)

// traces lists the processes of the machine that have to do with the cluster in a state folder: its components, and what has
// one of its mounts in sight.
func traces(state string) []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
		if strings.Contains(string(line), state) || strings.Contains(string(mounts), state) {
			found = append(found, dir+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// listeners returns the addresses at which processes listen, as the kernel's tables have them, by the processes' IDs.
func listeners(g *WithT, pids []int) (addresses []string) {
	sockets := map[string]bool{}
	for _, pid := range pids {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		g.Expect(err).NotTo(HaveOccurred())
		for _, descriptor := range descriptors {
			if target, err := os.Readlink(descriptor); err == nil {
				sockets[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
			}
		}
	}
	const listening = "0A"
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6"} {
		file, err := os.Open(table)
		g.Expect(err).NotTo(HaveOccurred())
		for lines := bufio.NewScanner(file); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > 9 && sockets[fields[9]] && (fields[3] == listening || strings.Contains(table, "udp")) {
				addresses = append(addresses, fields[1])
			}
		}
		g.Expect(file.Close()).To(Succeed())
	}
	return addresses
}

func TestNothingListensBeyondLoopback(t *testing.T) {
	g := NewWithT(t)
	status, err := shared.Status(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	pids := []int{status.Supervisor}
	for _, c := range status.Components {
		pids = append(pids, c.PID)
	}
	addresses := listeners(g, pids)
	g.Expect(len(addresses)).To(BeNumerically(">=", 4), "etcd has two, the API server and the node one each")
	g.Expect(addresses).To(HaveEach(HavePrefix("0100007F:")), "127.0.0.1")
}

func TestStartingARunningClusterChangesNothing(t *testing.T) {
	g := NewWithT(t)
	before, err := shared.Status(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	again, err := cluster.Start(t.Context(), cluster.Options{State: shared.State, Binary: binary})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Kubeconfig).To(Equal(shared.Kubeconfig))
	g.Expect(shared.Status(t.Context())).To(Equal(before))
	g.Expect(before.Ready).To(BeTrue())
	g.Expect(before.Components).To(HaveLen(5))
}

func TestAFolderWithOtherThingsIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.MkdirAll(filepath.Join(dir, "config"), 0o755)).To(Succeed())
	_, err := cluster.Start(t.Context(), cluster.Options{State: dir, Binary: binary})
	g.Expect(err).To(MatchError(ContainSubstring("is not the folder of a cluster")))
	g.Expect((&exec.Cmd{Path: binary, Args: []string{"devcluster", "stop", "--state", dir}}).Run()).To(Succeed())
	g.Expect(filepath.Join(dir, "config")).To(BeADirectory())
}

func TestAClusterEndsWithoutATrace(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(poll)
	state := filepath.Join(t.TempDir(), "a folder with a name that is longer than the name of a socket may be", strings.Repeat("x", 60))
	// Where programs leave things when nothing says otherwise.
	outside := map[string]string{"TMPDIR": t.TempDir(), "HOME": t.TempDir()}
	for variable, dir := range outside {
		t.Setenv(variable, dir)
	}

	start := func() (*cluster.Cluster, kubernetes.Interface, cluster.Status) {
		other, err := cluster.Start(t.Context(), cluster.Options{State: state, Binary: binary, Images: map[string]string{"shell": "/bin/sh"}})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = exec.Command(binary, "stop", "--state", state).Run() })
		config, err := other.RESTConfig()
		g.Expect(err).NotTo(HaveOccurred())
		otherClient, err := kubernetes.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
		pod := shellPod(forever, volume("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}, corev1.VolumeMount{MountPath: "/v"}))
		_, err = otherClient.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred(), "a start begins fresh")
		g.Eventually(func() (*corev1.Pod, error) {
			return otherClient.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
		}).Should(WithTransform(phase, Equal(corev1.PodRunning)))
		status, err := other.Status(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(traces(state)).NotTo(BeEmpty())
		return other, otherClient, status
	}

	other, _, _ := start()
	g.Expect(other.Stop(t.Context())).To(Succeed())
	g.Expect(traces(state)).To(BeEmpty(), "after stop")

	other, _, status := start()
	g.Expect(syscall.Kill(status.Supervisor, syscall.SIGKILL)).To(Succeed())
	g.Expect(other.Stop(t.Context())).To(Succeed())
	g.Expect(traces(state)).To(BeEmpty(), "after kill -9 and stop")

	_, _, status = start()
	g.Expect(syscall.Kill(status.Supervisor, syscall.SIGKILL)).To(Succeed())
	other, _, _ = start() // begins fresh although the one before was killed
	g.Expect(other.Stop(t.Context())).To(Succeed())
	g.Expect(traces(state)).To(BeEmpty(), "after kill -9, start and stop")
	g.Expect(names(state)).To(ConsistOf("audit.log", "devcluster.lock", "images", "logs", "supervisor.log"))
	for variable, dir := range outside {
		g.Expect(names(dir)).To(BeEmpty(), variable)
	}
	g.Expect("/var/run/kubernetes").NotTo(BeADirectory(), "where the API server keeps certificates by default")
}

func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	list := []string{}
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}

func TestComponentsAreSeenToDieAndCanBeRestarted(t *testing.T) {
	g, namespace := setUpAlone(t)
	// These die with the node.
	create(t, g, namespace, shellPod(forever))
	restarted := shellPod("echo run >> /v/runs; "+forever, func(pod *corev1.Pod) {
		pod.Name, pod.Spec.RestartPolicy = "again", corev1.RestartPolicyAlways
	}, volume("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeMount{MountPath: "/v"}))
	create(t, g, namespace, restarted)
	awaitPhase(t, g, namespace, corev1.PodRunning)
	g.Eventually(get(t, namespace, "again")).Should(WithTransform(phase, Equal(corev1.PodRunning)))
	ended := shellPod("echo from before", func(pod *corev1.Pod) { pod.Name = "ended" })
	create(t, g, namespace, ended)
	g.Eventually(get(t, namespace, "ended")).Should(WithTransform(phase, Equal(corev1.PodSucceeded)))

	for _, name := range []string{"node-1", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		status, err := shared.Status(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		for _, c := range status.Components {
			if c.Name == name {
				g.Expect(syscall.Kill(c.PID, syscall.SIGKILL)).To(Succeed())
			}
		}
		g.Eventually(func() (cluster.Status, error) { return shared.Status(t.Context()) }).Should(And(
			HaveField("Ready", false),
			HaveField("Components", ContainElement(And(HaveField("Name", name), HaveField("Running", false), HaveField("Exit", "signal: killed"))))))
		g.Expect(shared.Restart(t.Context(), name)).To(Succeed())
		g.Expect(shared.Status(t.Context())).To(HaveField("Ready", true))
	}

	lost := awaitPhase(t, g, namespace, corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	g.Expect(lost.ExitCode).To(BeEquivalentTo(137))
	g.Expect(lost.Reason).To(Equal("ContainerStatusUnknown"))
	g.Eventually(get(t, namespace, "again")).Should(And(
		WithTransform(phase, Equal(corev1.PodRunning)),
		HaveField("Status.ContainerStatuses", ConsistOf(And(HaveField("RestartCount", BeEquivalentTo(1)), HaveField("State.Running", Not(BeNil())))))))
	raw, err := client.CoreV1().Pods(namespace).GetLogs("ended", &corev1.PodLogOptions{}).DoRaw(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(raw)).To(Equal("from before\n"))
	create(t, g, namespace, shellPod("true", func(pod *corev1.Pod) { pod.Name = "afterwards" }))
	g.Eventually(get(t, namespace, "afterwards")).Should(WithTransform(phase, Equal(corev1.PodSucceeded)))
}
