package bundle

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// SnapshotKey is the key of the snapshot in its ConfigMap, and so the name of its file where the ConfigMap is mounted.
const SnapshotKey = "snapshot.tar.zst"

// maxConfigMapBytes is what the API server takes in a ConfigMap: a MiB of keys and values.
const maxConfigMapBytes = 1 << 20

// Job is the Job that a snapshot or a result belongs to.
type Job struct {
	Namespace string
	Name      string
	UID       types.UID
}

func (j Job) owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: j.Name, UID: j.UID}
}

// SnapshotConfigMap carries the contents that one render sees. It has the name of the render's Job and belongs to it. It
// fails with ErrTooLarge if the contents do not fit, which takes a MiB of text that does not compress.
func SnapshotConfigMap(job Job, inputDigest string, files map[string]string) (*corev1.ConfigMap, error) {
	data, err := pack(files)
	if err != nil {
		return nil, err
	}
	if len(data)+len(SnapshotKey) > maxConfigMapBytes {
		return nil, fmt.Errorf("%w: the snapshot has %d bytes, and a ConfigMap takes %d", ErrTooLarge, len(data), maxConfigMapBytes)
	}
	immutable := true
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace,
			Name:      job.Name,
			Labels: map[string]string{
				kiln.LabelComponent: kiln.ComponentSnapshot,
				kiln.LabelJobUID:    string(job.UID),
			},
			Annotations:     map[string]string{kiln.AnnotationInputDigest: inputDigest},
			OwnerReferences: []metav1.OwnerReference{job.owner()},
		},
		Immutable:  &immutable,
		BinaryData: map[string][]byte{SnapshotKey: data},
	}, nil
}

// UnpackSnapshot reads a snapshot and verifies that it is the one with the digest.
func UnpackSnapshot(data []byte, digest string, limits Limits) (map[string]string, error) {
	files, err := unpack(data, limits)
	if err != nil {
		return nil, fmt.Errorf("unpack the snapshot: %w", err)
	}
	if got := Digest(files); got != digest {
		return nil, fmt.Errorf("unpack the snapshot: %w: its digest is %s, not %s", ErrDamaged, got, digest)
	}
	return files, nil
}
