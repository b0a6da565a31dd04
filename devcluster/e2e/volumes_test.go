package e2e

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAJobsPodReadsItsConfigMapAtTheRealPath(t *testing.T) {
	g, namespace := setUp(t)
	configMap(t, g, namespace, "snapshot", map[string]string{"Kptfile": "kind: Kptfile\n"})
	pod := shellPod("grep -q 'kind: Kptfile' /kiln/snapshot/Kptfile", volume("snapshot",
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "snapshot"}}},
		corev1.VolumeMount{MountPath: "/kiln/snapshot"}))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: pod.Spec},
	}}
	_, err := client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func(g Gomega) {
		job, err := client.BatchV1().Jobs(namespace).Get(t.Context(), "job", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(job.Status.Succeeded).To(BeEquivalentTo(1))
		g.Expect(job.Status.Conditions).To(ContainElement(HaveField("Type", batchv1.JobComplete)))
	}).Should(Succeed())
}

func TestAPodStartsOnceItsMissingConfigMapAppears(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("cat /late/file", volume("late",
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}},
		corev1.VolumeMount{MountPath: "/late"})))
	g.Eventually(eventMessages(t, namespace)).Should(ContainElement(
		`FailedMount: MountVolume.SetUp failed for volume "late" : configmaps "late" not found`))
	pod := awaitPhase(t, g, namespace, corev1.PodPending)
	g.Expect(pod.Status.ContainerStatuses[0].State.Waiting.Reason).To(Equal("ContainerCreating"))

	configMap(t, g, namespace, "late", map[string]string{"file": "better late\n"})
	awaitPhase(t, g, namespace, corev1.PodSucceeded)
	g.Expect(logs(t, g, namespace, &corev1.PodLogOptions{})).To(Equal("better late\n"))
}

func TestVolumesShowWhatTheyAreMadeFrom(t *testing.T) {
	cases := map[string]struct {
		source corev1.VolumeSource
		mount  corev1.VolumeMount
		script string
	}{
		"a ConfigMap's items have their paths and modes": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "config"},
				Items:                []corev1.KeyToPath{{Key: "one", Path: "deep/er/1", Mode: ptr.To[int32](0o400)}},
			}},
			script: `test "$(cat /v/deep/er/1)" = first; test "$(stat -Lc %a /v/deep/er/1)" = 400; test ! -e /v/two`,
		},
		"a ConfigMap's files have the default mode": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, DefaultMode: ptr.To[int32](0o440),
			}},
			script: `test "$(stat -Lc %a /v/one)" = 440; test "$(ls /v | wc -l)" = 2`,
		},
		"an optional ConfigMap that is missing is an empty folder": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "nobody"}, Optional: ptr.To(true),
			}},
			script: `test -d /v; test -z "$(ls /v)"`,
		},
		"a Secret is read-only": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}},
			script: `test "$(cat /v/key)" = hidden; fails 'touch /v/new'; fails 'rm /v/key'`,
		},
		"the downward API shows labels and resources": {
			source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu"}},
			}}},
			script: `test "$(cat /v/labels)" = 'colour="green"'; test "$(cat /v/cpu)" = 16`,
		},
		"a projected volume joins its sources": {
			source: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
					{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "somebody"}},
			}}},
			script: `grep -q BEGIN.CERTIFICATE /v/ca.crt; test "$(cat /v/key)" = hidden; grep -q ^test- /v/namespace; grep -q '^ey' /v/token`,
		},
		"a sub-path shows one file": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
			mount:  corev1.VolumeMount{MountPath: "/elsewhere/file", SubPath: "two"},
			script: `test "$(cat /elsewhere/file)" = second; test "$(ls /elsewhere)" = file`,
		},
		"a sub-path that is missing in an emptyDir is made": {
			source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			mount:  corev1.VolumeMount{MountPath: "/v", SubPath: "a/b"},
			script: `touch /v/file`,
		},
		"an emptyDir that is mounted read-only is": {
			source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			mount:  corev1.VolumeMount{MountPath: "/v", ReadOnly: true},
			script: `fails 'touch /v/file'`,
		},
		"an emptyDir in memory is bounded by its size": {
			source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("1Mi"))}},
			script: `head -c 500000 /dev/zero > /v/fits; fails 'head -c 2000000 /dev/zero > /v/too-big'`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			configMap(t, g, namespace, "config", map[string]string{"one": "first", "two": "second"})
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"key": "hidden"}}
			_, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			if c.mount.MountPath == "" {
				c.mount.MountPath = "/v"
			}
			pod := shellPod(c.script, volume("v", c.source, c.mount))
			pod.Labels = map[string]string{"colour": "green"}
			succeed(t, g, namespace, pod)
		})
	}
}

func TestContainersOfAPodShareItsEmptyDirs(t *testing.T) {
	for name, medium := range map[string]corev1.StorageMedium{"on disk": "", "in memory": corev1.StorageMediumMemory} {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			succeed(t, g, namespace, shellPod("until test -e /shared/b; do sleep 0.02; done; touch /shared/a", func(pod *corev1.Pod) {
				pod.Spec.InitContainers = []corev1.Container{shell("init", "touch /shared/init")}
				pod.Spec.Containers = append(pod.Spec.Containers,
					shell("other", "test -e /shared/init; touch /shared/b; until test -e /shared/a; do sleep 0.02; done"))
			}, volume("shared", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}, corev1.VolumeMount{MountPath: "/shared"})))
		})
	}
}

func TestAUserOtherThanRootWritesToEmptyDirsAndReadsItsToken(t *testing.T) {
	cases := map[string]*corev1.PodSecurityContext{
		"with a user":           {RunAsUser: ptr.To[int64](1234), RunAsNonRoot: ptr.To(true)},
		"with a user and group": {RunAsUser: ptr.To[int64](1234), RunAsGroup: ptr.To[int64](55)},
		"with a group of files": {RunAsUser: ptr.To[int64](1234), FSGroup: ptr.To[int64](77)},
	}
	for name, security := range cases {
		t.Run(name, func(t *testing.T) {
			g, namespace := setUp(t)
			script := `test "$(id -u)" = 1234; touch /e/file; grep -q ^ey /var/run/secrets/kubernetes.io/serviceaccount/token; echo $(id -g) $(stat -c %g /e/file)`
			output := succeed(t, g, namespace, shellPod(script, func(pod *corev1.Pod) { pod.Spec.SecurityContext = security },
				volume("e", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeMount{MountPath: "/e"})))
			want := map[string]string{"with a user": "0 0\n", "with a user and group": "55 55\n", "with a group of files": "0 77\n"}
			g.Expect(output).To(Equal(want[name]))
		})
	}
}

func TestMountPointsInTheHostsFoldersLeaveTheHostAlone(t *testing.T) {
	g, namespace := setUp(t)
	source := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	succeed(t, g, namespace, shellPod("touch /usr/kiln-e2e/deep/file /etc/kiln-e2e/file; test -e /etc/passwd; test -e /usr/bin/env",
		volume("a", source, corev1.VolumeMount{MountPath: "/usr/kiln-e2e/deep"}),
		volume("b", source, corev1.VolumeMount{MountPath: "/etc/kiln-e2e"})))
	for _, path := range []string{"/usr/kiln-e2e", "/etc/kiln-e2e"} {
		_, err := os.Lstat(path)
		g.Expect(err).To(MatchError(os.ErrNotExist))
	}
}

func TestAPodsTokenIsBoundToThePod(t *testing.T) {
	g, namespace := setUp(t)
	create(t, g, namespace, shellPod("cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo; trap 'exit 0' TERM; while true; do sleep 0.05; done"))
	pod := awaitPhase(t, g, namespace, corev1.PodRunning)
	var token string
	g.Eventually(func() string {
		token = strings.TrimSpace(logs(t, g, namespace, &corev1.PodLogOptions{}))
		return token
	}).Should(HavePrefix("ey"))
	review := func(g Gomega) authenticationv1.TokenReviewStatus {
		r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		r, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), r, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return r.Status
	}
	status := review(g)
	g.Expect(status.Authenticated).To(BeTrue())
	g.Expect(status.User.Username).To(Equal("system:serviceaccount:" + namespace + ":default"))
	g.Expect(status.User.Extra).To(HaveKeyWithValue("authentication.kubernetes.io/pod-uid", authenticationv1.ExtraValue{string(pod.UID)}))

	g.Expect(client.CoreV1().Pods(namespace).Delete(t.Context(), "pod", metav1.DeleteOptions{})).To(Succeed())
	// The API server keeps its verdict on a token for ten seconds.
	g.Eventually(func(g Gomega) { g.Expect(review(g).Authenticated).To(BeFalse()) }).Should(Succeed())
}
