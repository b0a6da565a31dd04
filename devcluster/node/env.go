package node

import (
	"context"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment computes a container's variables in the order of their declaration, so that $(NAME) sees earlier ones.
// An error is what a kubelet reports as CreateContainerConfigError.
func (w *podWorker) environment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (map[string]string, error) {
	env := map[string]string{
		"PATH":     defaultPath,
		"HOME":     "/root",
		"HOSTNAME": hostname(pod),
		// Pods share the host's network, so the API server is where it is, and not at a service address.
		"KUBERNETES_SERVICE_HOST":       w.node.apiHost,
		"KUBERNETES_SERVICE_PORT":       w.node.apiPort,
		"KUBERNETES_SERVICE_PORT_HTTPS": w.node.apiPort,
		"KUBERNETES_PORT":               "tcp://" + w.node.apiHost + ":" + w.node.apiPort,
	}
	for _, from := range c.EnvFrom {
		data, err := w.envFrom(ctx, from)
		if err != nil {
			return nil, err
		}
		for key, value := range data {
			env[from.Prefix+key] = value
		}
	}
	declared := map[string]string{}
	mapping := expansion.MappingFuncFor(declared, env)
	for _, v := range c.Env {
		value, found := expansion.Expand(v.Value, mapping), true
		if v.ValueFrom != nil {
			var err error
			if value, found, err = w.envValue(ctx, pod, c, v.ValueFrom); err != nil {
				return nil, err
			}
		}
		if found {
			declared[v.Name] = value
		}
	}
	for name, value := range declared {
		env[name] = value
	}
	return env, nil
}

func (w *podWorker) envFrom(ctx context.Context, from corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		configMap, err := w.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if err != nil || configMap == nil {
			return nil, err
		}
		return configMap.Data, nil
	case from.SecretRef != nil:
		secret, err := w.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil || secret == nil {
			return nil, err
		}
		data := map[string]string{}
		for key, value := range secret.Data {
			data[key] = string(value)
		}
		return data, nil
	}
	return nil, nil
}

// envValue resolves one valueFrom; found is false for an optional reference to something absent.
func (w *podWorker) envValue(ctx context.Context, pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = w.podField(pod, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		ref := from.ResourceFieldRef
		container := c
		if ref.ContainerName != "" && ref.ContainerName != c.Name {
			if container = findContainer(pod, ref.ContainerName); container == nil {
				return "", false, fmt.Errorf("container %s not found", ref.ContainerName)
			}
		}
		merged := container.DeepCopy()
		resource.MergeContainerResourceLimits(merged, w.node.allocatable)
		value, err = resource.ExtractContainerResourceValue(ref, merged)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		configMap, err := w.configMap(ctx, ref.Name, ref.Optional)
		if err != nil || configMap == nil {
			return "", false, err
		}
		value, found = configMap.Data[ref.Key]
		if !found && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, pod.Namespace, ref.Name)
		}
		return value, found, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := w.secret(ctx, ref.Name, ref.Optional)
		if err != nil || secret == nil {
			return "", false, err
		}
		raw, found := secret.Data[ref.Key]
		if !found && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, pod.Namespace, ref.Name)
		}
		return string(raw), found, nil
	}
	return "", false, fmt.Errorf("this kind of valueFrom is not supported by the node of devcluster")
}

func (w *podWorker) podField(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.podIP", "status.hostIPs", "status.podIPs":
		return nodeIP, nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, path)
}

// configMap reads one live. It returns nil without an error when the reference is optional and there is none.
func (w *podWorker) configMap(ctx context.Context, name string, optional *bool) (*corev1.ConfigMap, error) {
	configMap, err := w.node.client.CoreV1().ConfigMaps(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	return configMap, err
}

// secret is configMap for secrets.
func (w *podWorker) secret(ctx context.Context, name string, optional *bool) (*corev1.Secret, error) {
	secret, err := w.node.client.CoreV1().Secrets(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	return secret, err
}

// commandLine applies command and args to the image's program, with $(NAME) expanded.
func commandLine(c *corev1.Container, image *Image, env map[string]string) []string {
	mapping := expansion.MappingFuncFor(env)
	expand := func(words []string) []string {
		var expanded []string
		for _, word := range words {
			expanded = append(expanded, expansion.Expand(word, mapping))
		}
		return expanded
	}
	switch {
	case len(c.Command) > 0:
		return append(expand(c.Command), expand(c.Args)...)
	case len(c.Args) > 0:
		return append([]string{image.Program}, expand(c.Args)...)
	default:
		return append([]string{image.Program}, image.Args...)
	}
}

func environ(env map[string]string) []string {
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	sort.Strings(list)
	return list
}

func hostname(pod *corev1.Pod) string {
	name := pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return name
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func isTrue(b *bool) bool { return b != nil && *b }
