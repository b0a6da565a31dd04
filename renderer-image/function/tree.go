package function

import (
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// The helpers here work on yaml.Node because the functions run over every field of every resource: the pipes of kyaml
// allocate on each step, and they drop the quoting of values that they overwrite.

const localConfigAnnotation = "config.kubernetes.io/local-config"

type meta struct {
	apiVersion, kind, namespace, name string
}

// group is the API group, empty for the core group.
func (m meta) group() string {
	group, _, found := strings.Cut(m.apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

// version is the API version without the group.
func (m meta) version() string {
	return m.apiVersion[strings.IndexByte(m.apiVersion, '/')+1:]
}

// sameResource says whether a cluster takes both for one resource: the version does not matter.
func (m meta) sameResource(other meta) bool {
	return m.group() == other.group() && m.kind == other.kind && m.namespace == other.namespace && m.name == other.name
}

func (m meta) isKptfile() bool {
	return m.kind == "Kptfile" && m.group() == "kpt.dev"
}

func metaOf(object *yaml.RNode) meta {
	root := object.YNode()
	md := child(root, "metadata")
	return meta{
		apiVersion: stringAt(root, "apiVersion"),
		kind:       stringAt(root, "kind"),
		namespace:  stringAt(md, "namespace"),
		name:       stringAt(md, "name"),
	}
}

// isLocalConfig says that the resource is for tools only and never reaches a cluster. As with kubectl-side tools, any value
// other than "false" counts.
func isLocalConfig(object *yaml.RNode) bool {
	value := find(object.YNode(), "metadata", "annotations", localConfigAnnotation)
	return value != nil && value.Value != "false"
}

// child returns the value under key, nil when node is not a mapping or has no such key.
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

// find follows path through mappings.
func find(node *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		node = child(node, key)
	}
	return node
}

// elements returns the elements of the list at path.
func elements(node *yaml.Node, path ...string) []*yaml.Node {
	list := find(node, path...)
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	return list.Content
}

func stringAt(node *yaml.Node, path ...string) string {
	value := find(node, path...)
	if value != nil && value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value == nil || value.Kind != yaml.ScalarNode || value.ShortTag() == yaml.NodeTagNull {
		return ""
	}
	return value.Value
}

// setString sets the string at path, making the mappings on the way, and says whether anything changed. It leaves the
// quoting and the comments of a value that was there. It does nothing where the path runs through something that is not
// a mapping.
func setString(node *yaml.Node, value string, path ...string) bool {
	for _, key := range path[:len(path)-1] {
		node = ensureMapping(node, key)
		if node == nil {
			return false
		}
	}
	if node.Kind != yaml.MappingNode {
		return false
	}
	key := path[len(path)-1]
	old := child(node, key)
	switch {
	case old == nil:
		node.Content = append(node.Content, scalar(key), scalar(value))
		return true
	case old.Kind == yaml.AliasNode:
		// Writing through the alias would change every other place that uses the anchor.
		*old = *scalar(value)
		return true
	case old.Kind != yaml.ScalarNode:
		return false
	case old.Value == value && old.ShortTag() == yaml.NodeTagString:
		return false
	}
	old.Value, old.Tag = value, yaml.NodeTagString
	return true
}

// ensureMapping returns the mapping under key, made when it is missing or null; nil when something else is there.
func ensureMapping(node *yaml.Node, key string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	value := child(node, key)
	switch {
	case value == nil:
		value = &yaml.Node{Kind: yaml.MappingNode, Tag: yaml.NodeTagMap}
		node.Content = slices.Insert(node.Content, placeFor(node, key), scalar(key), value)
	case value.Kind == yaml.ScalarNode && value.ShortTag() == yaml.NodeTagNull:
		value.Kind, value.Tag, value.Value, value.Style = yaml.MappingNode, yaml.NodeTagMap, "", 0
	case value.Kind != yaml.MappingNode:
		return nil
	}
	if len(value.Content) == 0 {
		// An empty mapping can only be written in flow style; what goes in next should not inherit it.
		value.Style &^= yaml.FlowStyle
	}
	return value
}

// placeFor says where in a mapping a new key goes: last, but annotations before everything that functions have added, as if
// they had been there from the start. Other tools keep their bookkeeping in annotations while they render, and so write
// packages that way. Nodes that were read from a file have a line.
func placeFor(node *yaml.Node, key string) int {
	place := len(node.Content)
	if key != "annotations" || place == 0 || node.Content[0].Line == 0 {
		return place
	}
	for place > 0 && node.Content[place-2].Line == 0 {
		place -= 2
	}
	return place
}

func scalar(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: yaml.NodeTagString, Value: value}
}
