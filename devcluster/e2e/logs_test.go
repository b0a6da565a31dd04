package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"
)

func TestLogsCanBeFollowedToTheEnd(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("echo first; until test -e /v/go; do sleep 0.02; done; echo last", func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, shell("other", forever))
	}, volume("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeMount{MountPath: "/v"})))
	awaitPhase(t, g, namespace, corev1.PodRunning)
	stream, err := client.CoreV1().Pods(namespace).GetLogs("pod", &corev1.PodLogOptions{Container: "main", Follow: true}).Stream(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = stream.Close() }()
	lines := bufio.NewReader(stream)
	line, err := lines.ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("first\n"))

	_, _, err = runIn(t, namespace, "other", "", "touch", "/v/go")
	g.Expect(err).NotTo(HaveOccurred())
	rest, err := io.ReadAll(lines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(rest)).To(Equal("last\n"))
}

func TestLogsCanBeCutAndStamped(t *testing.T) {
	g, namespace := setUp(t)
	begin := time.Now()
	succeed(t, g, namespace, shellPod("for i in 1 2 3 4 5; do echo line $i; done"))
	g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{TailLines: ptr.To[int64](2)})).To(Equal("line 4\nline 5\n"))
	g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{LimitBytes: ptr.To[int64](9)})).To(Equal("line 1\nli"))
	stamp, rest, _ := strings.Cut(logs(t, g, namespace, &corev1.PodLogOptions{TailLines: ptr.To[int64](1), Timestamps: true}), " ")
	g.Expect(rest).To(Equal("line 5\n"))
	at, err := time.Parse(time.RFC3339Nano, stamp)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(at).To(And(BeTemporally(">", begin), BeTemporally("<", time.Now())))
	g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{SinceSeconds: ptr.To[int64](3600)})).To(HavePrefix("line 1\n"))
}

func TestLongLinesArriveWhole(t *testing.T) {
	g, namespace := setUp(t)
	output := succeed(t, g, namespace, shellPod("head -c 100000 /dev/zero | tr '\\0' x; echo; printf 'no newline'"))
	g.Expect(output).To(Equal(strings.Repeat("x", 100000) + "\nno newline"))
}

// runIn runs a command in a container of the pod "pod".
func runIn(t *testing.T, namespace, container, stdin string, command ...string) (stdout, stderr string, err error) {
	config, err := shared.RESTConfig()
	if err != nil {
		return "", "", err
	}
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name("pod").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	if err != nil {
		return "", "", err
	}
	var out, problems bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &problems})
	return out.String(), problems.String(), err
}

func TestExecRunsInTheContainer(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("echo x > /mine; "+forever, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOUR", Value: "green"}}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	}))
	g.Eventually(func() string { return tryLogs(t, namespace) }).Should(ContainSubstring("up"))
	stdout, stderr, err := runIn(t, namespace, "main", "from outside", "sh", "-c",
		`cat; cat /mine; echo $COLOUR; cat /proc/1/comm; grep CapBnd /proc/self/status; echo problem >&2; exit 9`)
	g.Expect(stdout).To(Equal("from outsidex\ngreen\nsh\nCapBnd:\t0000000000000000\n"))
	g.Expect(stderr).To(Equal("problem\n"))
	g.Expect(err).To(Equal(utilexec.CodeExitError{Err: errors.New("command terminated with exit code 9"), Code: 9}))
}
