package e2e

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestVariablesComeFromEverywhereTheyCan(t *testing.T) {
	g, namespace := setUp(t)
	configMap(t, g, namespace, "config", map[string]string{"one": "first", "two": "second"})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"key": "hidden"}}
	_, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	pod := shellPod("env", func(pod *corev1.Pod) {
		pod.Labels, pod.Annotations = map[string]string{"x": "label"}, map[string]string{"x": "annotation"}
		c := &pod.Spec.Containers[0]
		c.Args = []string{"$(PLAIN)", "$$(PLAIN)", "$(UNKNOWN)"}
		c.Command = []string{"sh", "-ec", `env; echo "ARGS=$0 $1 $2"; pwd | sed s/^/DIR=/`}
		c.WorkingDir = "/some/where"
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		c.EnvFrom = []corev1.EnvFromSource{
			{Prefix: "C_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
		}
		c.Env = []corev1.EnvVar{
			{Name: "PLAIN", Value: "plain"}, {Name: "REFERS", Value: "to-$(PLAIN)-$(C_one)"}, {Name: "key", Value: "overridden"},
			{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "UID", ValueFrom: field("metadata.uid")},
			{Name: "LABEL", ValueFrom: field("metadata.labels['x']")}, {Name: "ANNOTATION", ValueFrom: field("metadata.annotations['x']")},
			{Name: "NODE", ValueFrom: field("spec.nodeName")}, {Name: "IP", ValueFrom: field("status.podIP")},
			{Name: "ACCOUNT", ValueFrom: field("spec.serviceAccountName")},
			{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}},
			{Name: "CONFIG", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Key: "two"}}},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "key"}}},
			{Name: "OPTIONAL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "nobody"}, Key: "key", Optional: ptr.To(true)}}},
		}
	})
	lines := strings.Split(succeed(t, g, namespace, pod), "\n")
	created, err := get(t, namespace, "pod")()
	g.Expect(err).NotTo(HaveOccurred())
	config, err := shared.RESTConfig()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lines).To(ContainElements(
		"PLAIN=plain", "REFERS=to-plain-first", "C_one=first", "C_two=second", "key=overridden",
		"NAME=pod", "UID="+string(created.UID), "LABEL=label", "ANNOTATION=annotation", "NODE=node-1", "IP=127.0.0.1", "ACCOUNT=default",
		"MEMORY=67108864", "CONFIG=second", "SECRET=hidden", "ARGS=plain $(PLAIN) $(UNKNOWN)", "DIR=/some/where", "HOSTNAME=pod",
		"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT="+config.Host[strings.LastIndex(config.Host, ":")+1:],
	))
	g.Expect(lines).NotTo(ContainElement(HavePrefix("OPTIONAL=")))
}

func TestAContainerWaitsForTheConfigMapOfAVariable(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("echo $LATE", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LATE", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "key"}}}}
	}))
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(waitingReason, Equal("CreateContainerConfigError")))
	configMap(t, g, namespace, "late", map[string]string{"key": "value"})
	awaitPhase(t, g, namespace, corev1.PodSucceeded)
	g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{})).To(Equal("value\n"))
}

func waitingReason(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Waiting == nil {
		return ""
	}
	return pod.Status.ContainerStatuses[0].State.Waiting.Reason
}

func TestAnUnmappedImageIsPulledInVainUntilItIsMapped(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("true", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "later:v1" }))
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(waitingReason, Equal("ErrImagePull")))
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(waitingReason, Equal("ImagePullBackOff")))
	g.Eventually(eventMessages(t, namespace)).Should(ContainElements(
		`Pulling: Pulling image "later:v1"`, ContainSubstring(`Failed: Failed to pull image "later:v1"`),
		`Failed: Error: ErrImagePull`, `BackOff: Back-off pulling image "later:v1"`, `Failed: Error: ImagePullBackOff`))
	g.Expect(mapImage("later:v1=/bin/sh")).To(Succeed())
	awaitPhase(t, g, namespace, corev1.PodSucceeded)
}

func TestWhatAContainerRuns(t *testing.T) {
	cases := map[string]struct {
		image         string
		command, args []string
		output        string
	}{
		"the image's program with its own arguments": {image: "with-args", output: "from the image\n"},
		"the image's program with the pod's":         {image: "with-args", args: []string{"from", "the pod"}, output: "from the pod\n"},
		"another program":                            {image: "with-args", command: []string{"printf", "%s-"}, args: []string{"a", "b"}, output: "a-b-"},
		"a path at which an image would have it":     {image: "with-args", command: []string{"/app/echo", "found"}, output: "found\n"},
		"the image's own user":                       {image: "with-user", args: []string{"-c", "id -u; id -g"}, output: "4321\n4322\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			g.Expect(succeed(t, g, namespace, shellPod("", func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = c.image, c.command, c.args
			}))).To(Equal(c.output))
		})
	}
}

func TestAProgramThatCannotBeStartedFailsThePod(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("", func(pod *corev1.Pod) { pod.Spec.Containers[0].Command = []string{"no-such-program"} }))
	terminated := awaitPhase(t, g, namespace, corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	g.Expect(terminated.Reason).To(Equal("StartError"))
	g.Expect(terminated.ExitCode).To(BeEquivalentTo(128))
	g.Expect(terminated.Message).To(ContainSubstring(`"no-such-program": executable file not found in $PATH`))
}

func TestRunAsNonRootRefusesRoot(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("true", func(pod *corev1.Pod) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}
	}))
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(waitingReason, Equal("CreateContainerConfigError")))
	g.Eventually(eventMessages(t, namespace)).Should(ContainElement(
		ContainSubstring("Error: container has runAsNonRoot and image will run as root")))
}

func TestAPodCannotReachTheHost(t *testing.T) {
	cases := map[string]string{
		"its processes are all it sees":           `test "$(cat /proc/1/comm)" = sh; test "$(ls /proc | grep -c '^[0-9]')" -lt 6`,
		"it has a host name of its own":           `test "$(cat /proc/sys/kernel/hostname)" = pod`,
		"the host's programs are read-only":       `fails 'touch /usr/kiln-e2e'; fails 'touch /bin/kiln-e2e'; fails 'touch /etc/kiln-e2e'`,
		"nothing can be mounted or made writable": `fails 'mount -o remount,rw /usr'; fails 'mount -t tmpfs none /tmp'; fails 'umount /usr'`,
		"no device can be made":                   `fails 'mknod /tmp/disk b 254 0'`,
		"kernel settings are read-only":           `fails 'echo 1 > /proc/sys/vm/drop_caches'; fails 'echo h > /proc/sysrq-trigger'; test ! -s /proc/kcore`,
		"the cluster's folder is not there":       `test ! -e '` + "STATE" + `'; test ! -e /.host`,
		"its own folders are empty":               `test -z "$(ls -A /tmp)"; test -z "$(ls -A /home)"; echo x > /tmp/file; echo x > /new`,
		"devices of the usual kind work":          `head -c 1 /dev/urandom > /dev/null; echo x > /dev/shm/x; echo ok > /dev/stdout`,
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			succeed(t, g, namespace, shellPod("exec 2>&1; "+strings.ReplaceAll(script, "STATE", shared.State)))
		})
	}
}

func TestSecurityContextsAreHonoured(t *testing.T) {
	cases := map[string]struct {
		security corev1.SecurityContext
		script   string
	}{
		"a read-only root is, but for /dev/shm and the termination log": {
			security: corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)},
			script:   `fails 'touch /file'; fails 'touch /tmp/file'; fails 'mkdir /kiln'; echo x > /dev/termination-log`,
		},
		"no capability is left when all are dropped": {
			security: corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			script:   `grep -q '^CapBnd:.0000000000000000$' /proc/self/status; fails 'chown 1 /tmp'`,
		},
		"one is left when it is added to none": {
			security: corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"CHOWN"}}},
			script:   `chown 1 /tmp`,
		},
		"privileges cannot be escalated": {
			security: corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)},
			script:   `grep -q '^NoNewPrivs:.1$' /proc/self/status`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			succeed(t, g, namespace, shellPod(c.script, func(pod *corev1.Pod) { pod.Spec.Containers[0].SecurityContext = &c.security }))
		})
	}
}
