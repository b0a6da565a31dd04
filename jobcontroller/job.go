package jobcontroller

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

const (
	// renderContainer is the container that runs the pipeline.
	renderContainer = "render"
	// renderGraceSeconds is more than the renderer needs, which exits within half a second of SIGTERM; one that is told before
	// its handler is in place does not hear it, and should not linger.
	renderGraceSeconds = 1
	// tokenSeconds is how long a token of the renderer lasts before the kubelet replaces it: the shortest it may.
	tokenSeconds = 600
	// rendererUser is an arbitrary user that is not root, the customary one of minimal images.
	rendererUser = 65532

	snapshotDir = "/kiln/snapshot"
	tokenDir    = "/var/run/secrets/kubernetes.io/serviceaccount"

	annotationRequest = "kiln.dev/request"
	annotationAttempt = "kiln.dev/attempt"
)

// renderName names a render after the revision, for people, and after all that tells it from others: the revision's UID
// and generation, the request and the attempt. It has at most 57 characters, so that the names of its pods fit 63.
func renderName(rev *kiln.PackageRevision, request string, attempt int32) string {
	const maxPrefix = 40
	hash := sha256.Sum256([]byte(fmt.Sprintf("%s|%d|%s", rev.UID, rev.Generation, request)))
	prefix := strings.ReplaceAll(rev.Name, ".", "-")
	if len(prefix) > maxPrefix {
		prefix = strings.TrimRight(prefix[:maxPrefix], "-")
	}
	return fmt.Sprintf("%s-%s-%d", prefix, hex.EncodeToString(hash[:5]), attempt)
}

// renderJob is the Job that runs one render.
func renderJob(order Order, image string) *batchv1.Job {
	rev, class := order.Revision, order.Class
	name := renderName(rev, order.Request, order.Attempt)
	labels := map[string]string{
		"app.kubernetes.io/managed-by": "kiln",
		kiln.LabelComponent:            kiln.ComponentRender,
		kiln.LabelPackage:              kiln.LabelValue(rev.Spec.PackageName),
		kiln.LabelRevision:             kiln.LabelValue(rev.Name),
		kiln.LabelRevisionUID:          string(rev.UID),
		kiln.LabelInputDigest:          order.InputDigest[:16],
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rev.Namespace,
			Name:      name,
			Labels:    labels,
			Annotations: map[string]string{
				kiln.AnnotationInputDigest: order.InputDigest,
				annotationRequest:          order.Request,
				annotationAttempt:          strconv.Itoa(int(order.Attempt)),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rev, kiln.GroupVersion.WithKind("PackageRevision"))},
		},
		Spec: batchv1.JobSpec{
			ActiveDeadlineSeconds:   ptr.To(ptr.Deref(class.ActiveDeadlineSeconds, defaultActiveDeadlineSeconds)),
			BackoffLimit:            ptr.To(ptr.Deref(class.BackoffLimit, defaultBackoffLimit)),
			TTLSecondsAfterFinished: ptr.To(ptr.Deref(class.TTLSecondsAfterFinished, defaultTTLSecondsAfterFinished)),
			PodReplacementPolicy:    ptr.To(batchv1.Failed),
			PodFailurePolicy:        podFailurePolicy(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       renderPod(order, image, name),
			},
		},
	}
}

// podFailurePolicy fails the Job at once when the package is at fault, and does not count pods that the cluster disrupted.
func podFailurePolicy() *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: ptr.To(renderContainer),
				Operator:      batchv1.PodFailurePolicyOnExitCodesOpIn,
				Values:        []int32{bundle.ExitRenderFailed},
			},
		},
		{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		},
	}}
}

func renderPod(order Order, image, name string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: ptr.To[int64](renderGraceSeconds),
		ServiceAccountName:            rendererName,
		AutomountServiceAccountToken:  ptr.To(false), // The projected one below lasts for minutes only.
		EnableServiceLinks:            ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](rendererUser),
			RunAsGroup:     ptr.To[int64](rendererUser),
			FSGroup:        ptr.To[int64](rendererUser),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:            renderContainer,
			Image:           image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Env: []corev1.EnvVar{
				{Name: bundle.EnvSnapshotDir, Value: snapshotDir},
				{Name: bundle.EnvInputDigest, Value: order.InputDigest},
				{Name: bundle.EnvPackage, Value: order.Revision.Spec.PackageName},
				{Name: bundle.EnvRevision, Value: order.Revision.Name},
				{Name: bundle.EnvJobName, Value: name},
				fromField(bundle.EnvNamespace, "metadata.namespace"),
				fromField(bundle.EnvPodName, "metadata.name"),
				fromField(bundle.EnvPodUID, "metadata.uid"),
				fromField(bundle.EnvJobUID, "metadata.labels['"+batchv1.ControllerUidLabel+"']"),
			},
			Resources: resourcesOf(order.Class),
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "snapshot", MountPath: snapshotDir, ReadOnly: true},
				{Name: "token", MountPath: tokenDir, ReadOnly: true},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: "snapshot", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
			}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](tokenSeconds)}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
			}}}},
		},
	}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}
