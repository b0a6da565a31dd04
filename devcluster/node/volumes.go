package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/secret"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// volumeDir is where a volume of the pod is on the host. What may be secret, and emptyDirs in memory, are in memory.
func (w *podWorker) volumeDir(v *corev1.Volume) string {
	root := w.node.podsDir
	if v.EmptyDir == nil || v.EmptyDir.Medium == corev1.StorageMediumMemory {
		root = w.node.memoryDir
	}
	return filepath.Join(root, w.uid, "volumes", v.Name)
}

// mountVolumes makes every volume of the pod that is not there yet. The error is the first volume's that could not be made;
// it names what is missing.
func (w *podWorker) mountVolumes(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if w.mounted[v.Name] {
			continue
		}
		if err := w.mountVolume(ctx, pod, v); err != nil {
			return &volumeError{volume: v.Name, cause: err}
		}
		w.mounted[v.Name] = true
	}
	return nil
}

// volumeError says which volume could not be set up, in a kubelet's words.
type volumeError struct {
	volume string
	cause  error
}

func (e *volumeError) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.volume, e.cause)
}

func (e *volumeError) Unwrap() error { return e.cause }

func (w *podWorker) mountVolume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) error {
	dir := w.volumeDir(v)
	if v.EmptyDir != nil {
		return makeEmptyDir(dir, v.EmptyDir, fsGroup(pod))
	}
	payload, err := w.payload(ctx, pod, v)
	if err != nil {
		return err
	}
	return writePayload(dir, payload, pod)
}

func makeEmptyDir(dir string, source *corev1.EmptyDirVolumeSource, group *int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if source.Medium == corev1.StorageMediumMemory && source.SizeLimit != nil && source.SizeLimit.Value() > 0 {
		size := fmt.Sprintf("size=%d", source.SizeLimit.Value())
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, size); err != nil {
			return fmt.Errorf("mount memory: %w", err)
		}
	}
	mode := os.FileMode(0o777)
	if group != nil {
		if err := os.Chown(dir, -1, int(*group)); err != nil {
			return err
		}
		mode |= os.ModeSetgid
	}
	return os.Chmod(dir, mode)
}

// payload collects the files of a volume that is made from API objects.
func (w *podWorker) payload(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (map[string]volumeutil.FileProjection, error) {
	switch {
	case v.ConfigMap != nil:
		return w.configMapPayload(ctx, v.ConfigMap.LocalObjectReference, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.Secret != nil:
		name := corev1.LocalObjectReference{Name: v.Secret.SecretName}
		return w.secretPayload(ctx, name, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional)
	case v.DownwardAPI != nil:
		return w.downwardPayload(pod, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		all := map[string]volumeutil.FileProjection{}
		for _, source := range v.Projected.Sources {
			files, err := w.projectedPayload(ctx, pod, source, v.Projected.DefaultMode)
			if err != nil {
				return nil, err
			}
			for path, file := range files {
				all[path] = file
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("this kind of volume is not supported by the node of devcluster; use configMap, secret, emptyDir, downwardAPI or projected")
}

func (w *podWorker) projectedPayload(ctx context.Context, pod *corev1.Pod, source corev1.VolumeProjection, mode *int32) (map[string]volumeutil.FileProjection, error) {
	switch {
	case source.ConfigMap != nil:
		return w.configMapPayload(ctx, source.ConfigMap.LocalObjectReference, source.ConfigMap.Items, mode, source.ConfigMap.Optional)
	case source.Secret != nil:
		return w.secretPayload(ctx, source.Secret.LocalObjectReference, source.Secret.Items, mode, source.Secret.Optional)
	case source.DownwardAPI != nil:
		return w.downwardPayload(pod, source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		return w.tokenPayload(ctx, pod, source.ServiceAccountToken, mode)
	}
	return nil, fmt.Errorf("this kind of projected source is not supported by the node of devcluster")
}

func (w *podWorker) configMapPayload(ctx context.Context, ref corev1.LocalObjectReference, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]volumeutil.FileProjection, error) {
	configMap, err := w.configMap(ctx, ref.Name, optional)
	if err != nil {
		return nil, err
	}
	if configMap == nil {
		configMap = &corev1.ConfigMap{}
	}
	return configmap.MakePayload(items, configMap, mode, nil, isTrue(optional))
}

func (w *podWorker) secretPayload(ctx context.Context, ref corev1.LocalObjectReference, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]volumeutil.FileProjection, error) {
	object, err := w.secret(ctx, ref.Name, optional)
	if err != nil {
		return nil, err
	}
	if object == nil {
		object = &corev1.Secret{}
	}
	return secret.MakePayload(items, object, mode, nil, isTrue(optional))
}

func (w *podWorker) downwardPayload(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, defaultMode *int32) (map[string]volumeutil.FileProjection, error) {
	files := map[string]volumeutil.FileProjection{}
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = w.podField(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = resource.ExtractResourceValueByContainerNameAndNodeAllocatable(item.ResourceFieldRef, pod, item.ResourceFieldRef.ContainerName, w.node.allocatable)
		}
		if err != nil {
			return nil, err
		}
		mode := defaultMode
		if item.Mode != nil {
			mode = item.Mode
		}
		files[filepath.Clean(item.Path)] = volumeutil.FileProjection{Data: []byte(value), Mode: *mode}
	}
	return files, nil
}

// writePayload replaces the volume's files in one step, as running containers may read them.
func writePayload(dir string, payload map[string]volumeutil.FileProjection, pod *corev1.Pod) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	writer, err := volumeutil.NewAtomicWriter(dir, "pod "+pod.Namespace+"/"+pod.Name)
	if err != nil {
		return err
	}
	return writer.Write(payload, func(string) error { return shareWithGroup(dir, fsGroup(pod)) })
}

// shareWithGroup lets the pod's group read all files below dir.
func shareWithGroup(dir string, group *int64) error {
	if group == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, int(*group)); err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Mode()&os.ModeSymlink != 0 {
			return err
		}
		if info.IsDir() {
			return os.Chmod(path, info.Mode()|0o070|os.ModeSetgid)
		}
		return os.Chmod(path, info.Mode()|0o440)
	})
}

func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
