package function

import (
	"go.starlark.net/starlark"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// elementKeys are the fields by which Kubernetes tells the elements of a list apart, so that each keeps its comments when the
// program reorders them.
var elementKeys = []string{"name", "key", "mountPath", "containerPort", "port", "image", "type"}

// mergeStarlark brings the value that a program left into the tree it was made from: comments, the order of fields and the way
// of writing stay wherever the value is still the same. changed says whether anything differs; the old tree is not
// modified.
func mergeStarlark(old *yaml.Node, value starlark.Value) (merged *yaml.Node, changed bool, err error) {
	m := &merger{}
	return m.merge(old, value, 0)
}

type merger struct{ builder nodeBuilder }

func (m *merger) merge(old *yaml.Node, value starlark.Value, depth int) (*yaml.Node, bool, error) {
	if depth > maxDepth {
		return nil, false, errTooDeep
	}
	switch value := value.(type) {
	case *starlark.Dict:
		if old.Kind == yaml.MappingNode {
			return m.mergeDict(old, value, depth)
		}
	case *starlark.List:
		if old.Kind == yaml.SequenceNode {
			return m.mergeList(old, value, depth)
		}
	default:
		if old.Kind == yaml.ScalarNode && sameScalar(old, value) {
			return old, false, nil
		}
	}
	node, err := m.builder.build(value, depth)
	if err != nil {
		return nil, false, err
	}
	node.HeadComment, node.LineComment, node.FootComment = old.HeadComment, old.LineComment, old.FootComment
	if old.Kind == yaml.ScalarNode && node.Kind == yaml.ScalarNode && node.Tag == yaml.NodeTagString && node.Style == 0 {
		node.Style = old.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)
	}
	return node, true, nil
}

func sameScalar(node *yaml.Node, value starlark.Value) bool {
	old, err := scalarToStarlark(node)
	if err != nil {
		return false
	}
	// 1 and 1.0 are equal in Starlark, but are not written alike.
	if old.Type() != value.Type() {
		return false
	}
	equal, err := starlark.Equal(old, value)
	return err == nil && equal
}

func (m *merger) mergeDict(old *yaml.Node, dict *starlark.Dict, depth int) (*yaml.Node, bool, error) {
	merged := *old
	merged.Content = make([]*yaml.Node, 0, max(len(old.Content), dict.Len()*2))
	changed := false
	kept := make(map[string]bool, dict.Len())
	for i := 0; i+1 < len(old.Content); i += 2 {
		key, err := scalarToStarlark(old.Content[i])
		if err != nil {
			return nil, false, err
		}
		value, found, err := dict.Get(key)
		if err != nil {
			return nil, false, err
		}
		if !found {
			changed = true
			continue
		}
		kept[key.String()] = true
		node, differs, err := m.merge(old.Content[i+1], value, depth+1)
		if err != nil {
			return nil, false, err
		}
		changed = changed || differs
		merged.Content = append(merged.Content, old.Content[i], node)
	}
	if len(kept) < dict.Len() {
		for _, item := range sortedItems(dict) {
			if kept[item[0].String()] {
				continue
			}
			key, err := scalarOf(&m.builder, item[0])
			if err != nil {
				return nil, false, err
			}
			value, err := m.builder.build(item[1], depth+1)
			if err != nil {
				return nil, false, err
			}
			changed = true
			merged.Content = append(merged.Content, key, value)
		}
	}
	if !changed {
		return old, false, nil
	}
	loosen(&merged, old)
	return &merged, true, nil
}

func scalarOf(builder *nodeBuilder, key starlark.Value) (*yaml.Node, error) {
	node, err := builder.build(key, 0)
	if err == nil && node.Kind != yaml.ScalarNode {
		return nil, errKey
	}
	return node, err
}

func (m *merger) mergeList(old *yaml.Node, list *starlark.List, depth int) (*yaml.Node, bool, error) {
	merged := *old
	merged.Content = make([]*yaml.Node, 0, list.Len())
	changed := list.Len() != len(old.Content)
	partner := partners(old, list)
	for i := range list.Len() {
		from := partner(i)
		if from < 0 {
			node, err := m.builder.build(list.Index(i), depth+1)
			if err != nil {
				return nil, false, err
			}
			changed = true
			merged.Content = append(merged.Content, node)
			continue
		}
		node, differs, err := m.merge(old.Content[from], list.Index(i), depth+1)
		if err != nil {
			return nil, false, err
		}
		changed = changed || differs || from != i
		merged.Content = append(merged.Content, node)
	}
	if !changed {
		return old, false, nil
	}
	loosen(&merged, old)
	return &merged, true, nil
}

// loosen lets a mapping or list that was empty, and hence in flow style, grow in block style.
func loosen(merged, old *yaml.Node) {
	if len(old.Content) == 0 {
		merged.Style &^= yaml.FlowStyle
	}
}

// partners says for each element of list which element of old it was, -1 for a new one: by a field that identifies elements,
// else by position.
func partners(old *yaml.Node, list *starlark.List) func(int) int {
	byPosition := func(i int) int {
		if i < len(old.Content) {
			return i
		}
		return -1
	}
	for _, key := range elementKeys {
		positions := make(map[string]int, len(old.Content))
		for i, element := range old.Content {
			if value := child(element, key); value != nil && value.Kind == yaml.ScalarNode {
				positions[value.Value] = i
			}
		}
		if len(positions) != len(old.Content) || len(positions) == 0 {
			continue
		}
		return func(i int) int {
			dict, ok := list.Index(i).(*starlark.Dict)
			if !ok {
				return -1
			}
			value, found, _ := dict.Get(starlark.String(key))
			if !found {
				return -1
			}
			if from, found := positions[keyText(value)]; found {
				return from
			}
			return -1
		}
	}
	return byPosition
}
