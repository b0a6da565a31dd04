package function

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const (
	dependsOnAnnotation = "config.kubernetes.io/depends-on"
	// upstreamAnnotation holds group|kind|namespace|name of the resource that this one was cloned from.
	upstreamAnnotation = "internal.kpt.dev/upstream-identifier"
	defaultNamespace   = "default"
)

// SetNamespace moves the resources of a package to one namespace: metadata.namespace of namespaced resources, the names of
// Namespaces, the namespaces of role binding subjects and of the services that CustomResourceDefinitions and APIServices
// call, and depends-on annotations between resources of the package. Local configuration is left alone. A resource of an
// unknown kind counts as namespaced when it has a namespace.
//
// The functionConfig is a ConfigMap with data.namespace (or, for the package context named kptfile.kpt.dev, data.name),
// or a SetNamespace with the field namespace. With namespaceMatcher only that namespace is replaced.
func SetNamespace(_ context.Context, list *ResourceList) error {
	setter, err := newNamespaceSetter(list.Config)
	if err != nil {
		return err
	}
	var items []*Item
	for _, item := range list.Items {
		if !isLocalConfig(item.Object) {
			items = append(items, item)
		}
	}
	origins := map[string]bool{}
	known := map[string]bool{}
	for _, item := range items {
		namespaced, found := scope(item.Object)
		if origin, has := upstreamNamespace(item.Object); has && (namespaced || !found) {
			origins[origin] = true
		}
		known[dependsOnID(item.Object)] = true
	}
	if setter.matcher == "" && len(origins) > 1 {
		return fmt.Errorf("the resources come from several upstream namespaces %q: set namespaceMatcher to the one to replace",
			slices.Sorted(maps.Keys(origins)))
	}
	for _, item := range items {
		setter.set(list, item)
	}
	for _, item := range items {
		setter.setDependsOn(list, item, known)
	}
	if setter.count == 0 {
		list.report(Info, "all matching namespaces are already %q", setter.namespace)
	} else {
		list.report(Info, "namespace %q updated to %q, %d values changed",
			slices.Sorted(maps.Keys(setter.replaced)), setter.namespace, setter.count)
	}
	return nil
}

type namespaceSetter struct {
	namespace, matcher string
	replaced           map[string]bool
	count              int
}

func newNamespaceSetter(config *yaml.RNode) (*namespaceSetter, error) {
	s := &namespaceSetter{replaced: map[string]bool{}}
	switch {
	case config == nil:
		return nil, wrongConfig(config, "a ConfigMap with data.namespace, or a SetNamespace of "+configAPIVersion)
	case isConfigMap(config):
		root := config.YNode()
		s.matcher = stringAt(root, "data", "namespaceMatcher")
		s.namespace = stringAt(root, "data", "namespace")
		if s.namespace == "" && metaOf(config).name == packageContextName {
			s.namespace = stringAt(root, "data", "name")
		}
		if s.namespace == "" {
			return nil, errors.New("the functionConfig's field data.namespace is empty: set it to the wanted namespace")
		}
	case isOwnKind(config, "SetNamespace"):
		s.matcher = stringAt(config.YNode(), "namespaceMatcher")
		s.namespace = stringAt(config.YNode(), "namespace")
		if s.namespace == "" {
			return nil, errors.New("the functionConfig's field namespace is empty: set it to the wanted namespace")
		}
	default:
		return nil, wrongConfig(config, "a ConfigMap with data.namespace, or a SetNamespace of "+configAPIVersion)
	}
	return s, nil
}

// set replaces every namespace that the resource itself holds.
func (s *namespaceSetter) set(list *ResourceList, item *Item) {
	root := item.Object.YNode()
	m := metaOf(item.Object)
	origin, hasOrigin := upstreamNamespace(item.Object)
	if namespaced, found := scope(item.Object); namespaced || (!found && m.namespace != "") {
		if !hasOrigin {
			origin = m.namespace
		}
		if s.replace(root, m.namespace, origin, "metadata", "namespace") {
			s.report(list, item, "metadata.namespace", m.namespace)
		}
	}
	switch {
	case m.apiVersion == "v1" && m.kind == "Namespace":
		if s.replace(root, m.name, "", "metadata", "name") {
			s.report(list, item, "metadata.name", m.name)
		}
	case m.group() == "apiextensions.k8s.io" && m.kind == "CustomResourceDefinition":
		s.replaceSet(list, item, root, "", "spec", "conversion", "webhook", "clientConfig", "service", "namespace")
	case m.group() == "apiregistration.k8s.io" && m.kind == "APIService":
		s.replaceSet(list, item, root, "", "spec", "service", "namespace")
	case m.kind == "ClusterRoleBinding" || m.kind == "RoleBinding":
		for i, subject := range elements(root, "subjects") {
			s.replaceSet(list, item, subject, fmt.Sprintf("subjects[%d].", i), "namespace")
		}
	}
}

// replaceSet replaces the namespace at path below node when there is one. at is where node stands in the resource.
func (s *namespaceSetter) replaceSet(list *ResourceList, item *Item, node *yaml.Node, at string, path ...string) {
	current := stringAt(node, path...)
	if current != "" && s.replace(node, current, "", path...) {
		s.report(list, item, at+strings.Join(path, "."), current)
	}
}

func (s *namespaceSetter) report(list *ResourceList, item *Item, field, old string) {
	list.reportChange(item, field, old, s.namespace, "set the namespace to %q", s.namespace)
}

// replace sets the namespace at path below node, unless it is not the one to replace, and says whether it did.
func (s *namespaceSetter) replace(node *yaml.Node, current, origin string, path ...string) bool {
	previous := current
	if previous == "" {
		previous = defaultNamespace
	}
	if s.matcher != "" && s.matcher != previous && s.matcher != origin {
		return false
	}
	if current == s.namespace || !setString(node, s.namespace, path...) {
		return false
	}
	s.count++
	s.replaced[previous] = true
	return true
}

// setDependsOn follows the resources of the package that a depends-on annotation names.
func (s *namespaceSetter) setDependsOn(list *ResourceList, item *Item, known map[string]bool) {
	path := []string{"metadata", "annotations", dependsOnAnnotation}
	root := item.Object.YNode()
	old := stringAt(root, path...)
	if old == "" {
		return
	}
	references := strings.Split(old, ",")
	for i, reference := range references {
		segments := strings.Split(strings.TrimSpace(reference), "/")
		if len(segments) != 5 || segments[1] != "namespaces" || !known[strings.TrimSpace(reference)] {
			continue
		}
		if s.matcher == "" || s.matcher == segments[2] {
			segments[2] = s.namespace
			references[i] = strings.Join(segments, "/")
		}
	}
	value := strings.Join(references, ",")
	if value != old && setString(root, value, path...) {
		list.reportChange(item, strings.Join(path, "."), old, value, "set the namespace of depends-on to %q", s.namespace)
	}
}

// dependsOnID is how a depends-on annotation writes a namespaced resource.
func dependsOnID(object *yaml.RNode) string {
	m := metaOf(object)
	namespace := m.namespace
	if namespace == "" {
		namespace = defaultNamespace
	}
	return m.group() + "/namespaces/" + namespace + "/" + m.kind + "/" + m.name
}

// scope says whether the resource is namespaced, and whether its kind is known at all. It only looks at the table that kyaml
// has compiled in: reading the whole OpenAPI schema would take longer than the render.
func scope(object *yaml.RNode) (namespaced, found bool) {
	m := metaOf(object)
	return openapi.IsNamespaceScoped(yaml.TypeMeta{APIVersion: m.apiVersion, Kind: m.kind})
}

// upstreamNamespace returns the namespace the resource has upstream, if it has one.
func upstreamNamespace(object *yaml.RNode) (string, bool) {
	id := stringAt(object.YNode(), "metadata", "annotations", upstreamAnnotation)
	segments := strings.Split(id, "|")
	if len(segments) != 4 || segments[2] == "~C" {
		return "", false
	}
	return segments[2], true
}
