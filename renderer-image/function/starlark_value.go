package function

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// maxDepth bounds how deep values may be nested, maxNodes how many a resource may have once its aliases are expanded.
const (
	maxDepth = 500
	maxNodes = 1_000_000
)

var errTooDeep = fmt.Errorf("values are nested deeper than %d", maxDepth)

// withoutAliases returns node with every alias replaced by a copy of what it stands for, and node itself when it has none.
// The parser has already refused cycles and expansions that grow out of hand.
func withoutAliases(node *yaml.Node) *yaml.Node {
	if !hasAlias(node) {
		return node
	}
	return expand(node)
}

func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || node.Anchor != "" || slices.ContainsFunc(node.Content, hasAlias)
}

func expand(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return expand(node.Alias)
	}
	copied := *node
	copied.Anchor = ""
	copied.Content = make([]*yaml.Node, 0, len(node.Content))
	for i, content := range node.Content {
		// <<: *base brings in the fields that the mapping does not set itself.
		if node.Kind == yaml.MappingNode && i%2 == 0 && content.ShortTag() == yaml.MergeTag {
			continue
		}
		if node.Kind == yaml.MappingNode && i%2 == 1 && node.Content[i-1].ShortTag() == yaml.MergeTag {
			copied.Content = mergeFields(copied.Content, node, expand(content))
			continue
		}
		copied.Content = append(copied.Content, expand(content))
	}
	return &copied
}

func mergeFields(content []*yaml.Node, own, merged *yaml.Node) []*yaml.Node {
	if merged.Kind == yaml.SequenceNode {
		for _, element := range merged.Content {
			content = mergeFields(content, own, element)
		}
		return content
	}
	if merged.Kind != yaml.MappingNode {
		return content
	}
	so := &yaml.Node{Kind: yaml.MappingNode, Content: content}
	for i := 0; i+1 < len(merged.Content); i += 2 {
		key := merged.Content[i].Value
		if child(own, key) == nil && child(so, key) == nil {
			so.Content = append(so.Content, merged.Content[i], merged.Content[i+1])
		}
	}
	return so.Content
}

// toStarlark converts a tree without aliases.
func toStarlark(node *yaml.Node) (starlark.Value, error) {
	return toStarlarkAt(node, 0)
}

func toStarlarkAt(node *yaml.Node, depth int) (starlark.Value, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch node.Kind {
	case yaml.DocumentNode:
		return toStarlarkAt(node.Content[0], depth)
	case yaml.MappingNode:
		dict := starlark.NewDict(len(node.Content) / 2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, err := scalarToStarlark(node.Content[i])
			if err != nil {
				return nil, err
			}
			value, err := toStarlarkAt(node.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			if err := dict.SetKey(key, value); err != nil {
				return nil, err
			}
		}
		return dict, nil
	case yaml.SequenceNode:
		values := make([]starlark.Value, len(node.Content))
		for i, element := range node.Content {
			value, err := toStarlarkAt(element, depth+1)
			if err != nil {
				return nil, err
			}
			values[i] = value
		}
		return starlark.NewList(values), nil
	case yaml.ScalarNode:
		return scalarToStarlark(node)
	}
	return nil, errors.New("the YAML has an alias where none is possible")
}

func scalarToStarlark(node *yaml.Node) (starlark.Value, error) {
	if node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("line %d: a key must be a scalar", node.Line)
	}
	switch node.ShortTag() {
	case yaml.NodeTagNull:
		return starlark.None, nil
	case yaml.NodeTagBool:
		var value bool
		if err := node.Decode(&value); err != nil {
			return nil, err
		}
		return starlark.Bool(value), nil
	case yaml.NodeTagInt:
		if value, err := strconv.ParseInt(node.Value, 10, 64); err == nil && !leadingZero(node.Value) {
			return starlark.MakeInt64(value), nil
		}
		var value int64
		if err := node.Decode(&value); err == nil {
			return starlark.MakeInt64(value), nil
		}
		if value, ok := new(big.Int).SetString(strings.ReplaceAll(node.Value, "_", ""), 0); ok {
			return starlark.MakeBigInt(value), nil
		}
		return nil, fmt.Errorf("line %d: %q is not a number", node.Line, node.Value)
	case yaml.NodeTagFloat:
		var value float64
		if err := node.Decode(&value); err != nil {
			return nil, err
		}
		return starlark.Float(value), nil
	}
	return starlark.String(node.Value), nil
}

// leadingZero tells numbers that YAML may read as octal.
func leadingZero(text string) bool {
	text = strings.TrimLeft(text, "+-")
	return len(text) > 1 && text[0] == '0'
}

// fromStarlark makes a tree, keys sorted.
func fromStarlark(value starlark.Value) (*yaml.Node, error) {
	return (&nodeBuilder{}).build(value, 0)
}

type nodeBuilder struct{ nodes int }

func (b *nodeBuilder) build(value starlark.Value, depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	if b.nodes++; b.nodes > maxNodes {
		return nil, fmt.Errorf("a resource has more than %d values", maxNodes)
	}
	switch value := value.(type) {
	case *starlark.Dict:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: yaml.NodeTagMap}
		for _, item := range sortedItems(value) {
			key, err := b.build(item[0], depth+1)
			if err != nil {
				return nil, err
			}
			if key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("the key %s must be a string", item[0])
			}
			child, err := b.build(item[1], depth+1)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, key, child)
		}
		return node, nil
	case starlark.String:
		node := scalar(string(value))
		if strings.Contains(node.Value, "\n") {
			node.Style = yaml.LiteralStyle
		}
		return node, nil
	case starlark.Iterable:
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: yaml.NodeTagSeq}
		iterator := value.Iterate()
		defer iterator.Done()
		var element starlark.Value
		for iterator.Next(&element) {
			child, err := b.build(element, depth+1)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		return node, nil
	}
	return scalarFromStarlark(value)
}

func scalarFromStarlark(value starlark.Value) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: value.String()}
	switch value := value.(type) {
	case starlark.NoneType:
		node.Tag, node.Value = yaml.NodeTagNull, "null"
	case starlark.Bool:
		node.Tag, node.Value = yaml.NodeTagBool, strconv.FormatBool(bool(value))
	case starlark.Int:
		node.Tag = yaml.NodeTagInt
	case starlark.Float:
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			return nil, fmt.Errorf("the number %s cannot be written", value)
		}
		node.Tag, node.Value = yaml.NodeTagFloat, strconv.FormatFloat(float64(value), 'g', -1, 64)
	default:
		return nil, fmt.Errorf("a %s cannot be written as YAML", value.Type())
	}
	return node, nil
}

func sortedItems(dict *starlark.Dict) []starlark.Tuple {
	items := dict.Items()
	slices.SortStableFunc(items, func(a, b starlark.Tuple) int {
		return strings.Compare(keyText(a[0]), keyText(b[0]))
	})
	return items
}

func keyText(key starlark.Value) string {
	if text, ok := starlark.AsString(key); ok {
		return text
	}
	return key.String()
}
