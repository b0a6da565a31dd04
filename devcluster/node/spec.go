package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"k8s.io/utils/ptr"

	"github.com/kiln-dev/kiln/devcluster/internal/container"
)

const (
	sigterm = syscall.SIGTERM
	// terminationLog is the file behind terminationMessagePath.
	terminationLog = "termination-log"
)

func (w *podWorker) containerDir(c *corev1.Container) string {
	return filepath.Join(w.node.podsDir, w.uid, "containers", c.Name)
}

// containerSpec turns a container of the API into what the process package starts.
func (w *podWorker) containerSpec(ctx context.Context, pod *corev1.Pod, c *corev1.Container, image *Image) (*container.Spec, error) {
	env, err := w.environment(ctx, pod, c)
	if err != nil {
		return nil, err
	}
	spec := &container.Spec{
		Root:       filepath.Join(w.containerDir(c), "root"),
		Source:     w.node.mountSource,
		Hostname:   hostname(pod),
		Program:    image.Program,
		WorkingDir: c.WorkingDir,
	}
	if err := secure(spec, pod, c, image); err != nil {
		return nil, err
	}
	if spec.UID != 0 && env["HOME"] == "/root" {
		env["HOME"] = "/"
	}
	spec.Args, spec.Env = commandLine(c, image, env), environ(env)
	for _, m := range c.VolumeMounts {
		mount, err := w.volumeMount(pod, m, env)
		if err != nil {
			return nil, err
		}
		spec.Mounts = append(spec.Mounts, mount)
	}
	if c.TerminationMessagePath != "" {
		source := filepath.Join(w.containerDir(c), terminationLog)
		spec.Mounts = append(spec.Mounts, container.Mount{Source: source, Target: c.TerminationMessagePath})
	}
	return spec, nil
}

func (w *podWorker) volumeMount(pod *corev1.Pod, m corev1.VolumeMount, env map[string]string) (container.Mount, error) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Name != m.Name {
			continue
		}
		subPath := m.SubPath
		if m.SubPathExpr != "" {
			subPath = expansion.Expand(m.SubPathExpr, expansion.MappingFuncFor(env))
		}
		return container.Mount{
			Source: w.volumeDir(v), Target: m.MountPath, SubPath: subPath,
			// What comes from API objects is read-only in any case.
			ReadOnly: m.ReadOnly || v.EmptyDir == nil,
		}, nil
	}
	return container.Mount{}, fmt.Errorf("cannot find volume %q to mount into container", m.Name)
}

// secure applies the security contexts of the pod and the container.
func secure(spec *container.Spec, pod *corev1.Pod, c *corev1.Container, image *Image) error {
	podContext, own := pod.Spec.SecurityContext, c.SecurityContext
	if podContext == nil {
		podContext = &corev1.PodSecurityContext{}
	}
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	spec.UID, spec.GID = image.UID, image.GID
	if user := declaredUser(pod, c); user != nil {
		spec.UID, spec.GID = int(*user), 0
	}
	if group := firstSet(own.RunAsGroup, podContext.RunAsGroup); group != nil {
		spec.GID = int(*group)
	}
	if ptr.Deref(firstSet(own.RunAsNonRoot, podContext.RunAsNonRoot), false) && spec.UID == 0 {
		return fmt.Errorf("%w (pod: \"%s_%s(%s)\", container: %s)", errRunsAsRoot, pod.Name, pod.Namespace, pod.UID, c.Name)
	}
	for _, group := range podContext.SupplementalGroups {
		spec.Groups = append(spec.Groups, int(group))
	}
	if podContext.FSGroup != nil {
		spec.Groups = append(spec.Groups, int(*podContext.FSGroup))
	}
	spec.ReadOnlyRoot = isTrue(own.ReadOnlyRootFilesystem)
	spec.Privileged = isTrue(own.Privileged)
	spec.NoNewPrivileges = !ptr.Deref(own.AllowPrivilegeEscalation, true)
	if own.Capabilities != nil {
		for _, name := range own.Capabilities.Add {
			spec.AddCapabilities = append(spec.AddCapabilities, string(name))
		}
		for _, name := range own.Capabilities.Drop {
			spec.DropCapabilities = append(spec.DropCapabilities, string(name))
		}
	}
	return nil
}

func firstSet[T any](values ...*T) *T {
	for _, value := range values {
		if value != nil {
			return value
		}
	}
	return nil
}

// prepareContainerDir makes the folder for the root and an empty termination log that any user can write.
func prepareContainerDir(dir string, spec *container.Spec) error {
	if err := os.MkdirAll(spec.Root, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, terminationLog)
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return err
	}
	return os.Chmod(path, 0o666)
}
