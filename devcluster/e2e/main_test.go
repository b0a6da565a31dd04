// Package e2e tests devcluster as its users see it: one cluster, made by the built binary, for all tests.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kiln-dev/kiln/devcluster/cluster"
)

var (
	binary string
	shared *cluster.Cluster
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: these tests need root, since devcluster makes namespaces and mounts")
		return
	}
	code, err := withCluster(m)
	if err != nil {
		fmt.Println("FAIL:", err)
		code = 1
	}
	os.Exit(code)
}

func withCluster(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "devcluster-test")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if binary = os.Getenv(cluster.BinaryVariable); binary == "" {
		binary = filepath.Join(dir, "devcluster")
		if output, err := exec.Command("go", "build", "-o", binary, "../cmd/devcluster").CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build devcluster: %w: %s", err, output)
		}
	}
	ctx := context.Background()
	shared, err = cluster.Start(ctx, cluster.Options{
		State:  filepath.Join(dir, "state"),
		Binary: binary,
		Images: map[string]string{"shell": "/bin/sh", "with-user": "4321:4322@/bin/sh", "with-args": "/bin/echo from the image"},
		Flags:  []string{"--restart-backoff=100ms", "--node-cpu=16"},
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := shared.Stop(ctx); stopErr != nil {
			err = stopErr
		}
	}()
	config, err := shared.RESTConfig()
	if err != nil {
		return 1, err
	}
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// patience is how long the tests wait for what has to happen, and poll how often they look.
const patience, poll = 40 * time.Second, 20 * time.Millisecond

// setUp gives a test a namespace of its own, and gomega with that patience.
func setUp(t *testing.T) (*WithT, string) {
	t.Helper()
	t.Parallel()
	return setUpAlone(t)
}

// setUpAlone is setUp for tests that disturb others.
func setUpAlone(t *testing.T) (*WithT, string) {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(poll)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	object, err := client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), object.Name, metav1.DeleteOptions{})
	})
	g.Eventually(func() error {
		_, err := client.CoreV1().ServiceAccounts(object.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}).Should(Succeed())
	return g, object.Name
}

// shellPod is a pod that runs a script once.
func shellPod(script string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{shell("main", script)},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// fails is a function of test scripts: what it is given must not succeed. (sh -e does not mind if "! command" is false.)
const fails = `fails() { if sh -c "$1"; then echo "this should have failed: $1" >&2; exit 1; fi; }; `

func shell(name, script string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "shell", Command: []string{"sh", "-ec", fails + script},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func create(t *testing.T, g *WithT, namespace string, pod *corev1.Pod) {
	t.Helper()
	_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

func get(t *testing.T, namespace, name string) func() (*corev1.Pod, error) {
	return func() (*corev1.Pod, error) {
		return client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	}
}

func phase(pod *corev1.Pod) corev1.PodPhase { return pod.Status.Phase }

// awaitPhase waits until the pod named "pod" is in a phase, and returns it.
func awaitPhase(t *testing.T, g *WithT, namespace string, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	g.Eventually(get(t, namespace, "pod")).Should(WithTransform(phase, Equal(want)), func() string { return describe(namespace) })
	pod, err := get(t, namespace, "pod")()
	g.Expect(err).NotTo(HaveOccurred())
	return pod
}

// succeed runs a pod and expects success; what its script prints is returned.
func succeed(t *testing.T, g *WithT, namespace string, pod *corev1.Pod) string {
	t.Helper()
	create(t, g, namespace, pod)
	g.Eventually(get(t, namespace, pod.Name)).Should(WithTransform(phase, BeElementOf(corev1.PodSucceeded, corev1.PodFailed)), func() string { return describe(namespace) })
	output := logs(t, g, namespace, &corev1.PodLogOptions{Container: pod.Spec.Containers[0].Name})
	ended, err := get(t, namespace, pod.Name)()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ended.Status.Phase).To(Equal(corev1.PodSucceeded), output)
	return output
}

func logs(t *testing.T, g *WithT, namespace string, options *corev1.PodLogOptions) string {
	t.Helper()
	raw, err := client.CoreV1().Pods(namespace).GetLogs("pod", options).DoRaw(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// describe says what kubectl would say about the pods of a namespace.
func describe(namespace string) string {
	output, _ := exec.Command(binary, "kubectl", "--state="+shared.State, "describe", "pods", "-n", namespace).CombinedOutput()
	return string(output)
}

// eventMessages lists the events of a namespace as "REASON: MESSAGE".
func eventMessages(t *testing.T, namespace string) func() ([]string, error) {
	return func() ([]string, error) {
		list, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var messages []string
		for i := range list.Items {
			messages = append(messages, list.Items[i].Reason+": "+list.Items[i].Message)
		}
		return messages, nil
	}
}

func configMap(t *testing.T, g *WithT, namespace, name string, data map[string]string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

// volume adds a volume to the pod and mounts it in all its containers.
func volume(name string, source corev1.VolumeSource, mount corev1.VolumeMount) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		mount.Name = name
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, mount)
			}
		}
	}
}

// mapImage maps an image while the cluster runs.
func mapImage(mapping string) error {
	file, err := os.OpenFile(filepath.Join(shared.State, "images"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(mapping + "\n")
	return errors.Join(err, file.Close())
}
