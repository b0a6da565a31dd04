package pipeline

import "sigs.k8s.io/kustomize/kyaml/yaml"

// selector matches the resources that have everything it names; empty fields match all.
type selector struct {
	apiVersion, kind, name, namespace string
	labels, annotations               map[string]string
}

func (s *selector) isEmpty() bool {
	return s.apiVersion == "" && s.kind == "" && s.name == "" && s.namespace == "" && len(s.labels) == 0 && len(s.annotations) == 0
}

func (s *selector) matches(root *yaml.Node) bool {
	metadata := child(root, "metadata")
	return matchesText(s.apiVersion, root, "apiVersion") &&
		matchesText(s.kind, root, "kind") &&
		matchesText(s.name, metadata, "name") &&
		matchesText(s.namespace, metadata, "namespace") &&
		matchesAll(s.labels, child(metadata, "labels")) &&
		matchesAll(s.annotations, child(metadata, "annotations"))
}

func matchesText(wanted string, node *yaml.Node, key string) bool {
	return wanted == "" || text(node, key) == wanted
}

func matchesAll(wanted map[string]string, node *yaml.Node) bool {
	for key, value := range wanted {
		if found := child(node, key); found == nil || found.Value != value {
			return false
		}
	}
	return true
}

// selects says whether the function works on the resource: some selector matches, if there are any, and no exclusion does. An
// empty selector matches all, an empty exclusion nothing.
func (f *functionRef) selects(root *yaml.Node) bool {
	for i := range f.exclude {
		if !f.exclude[i].isEmpty() && f.exclude[i].matches(root) {
			return false
		}
	}
	for i := range f.selectors {
		if f.selectors[i].matches(root) {
			return true
		}
	}
	return len(f.selectors) == 0
}

// child returns the value under key, nil when node is no mapping or has none.
func child(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// text returns the scalar under key, empty when there is none.
func text(node *yaml.Node, key string) string {
	found := child(node, key)
	if found == nil || found.Kind != yaml.ScalarNode || found.ShortTag() == yaml.NodeTagNull {
		return ""
	}
	return found.Value
}
