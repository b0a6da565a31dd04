package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// encodeJSON writes the tree as indented JSON, fields in their order.
func encodeJSON(node *yaml.Node) (string, error) {
	var out strings.Builder
	if err := writeJSON(&out, node, "\n"); err != nil {
		return "", err
	}
	return out.String() + "\n", nil
}

func writeJSON(out *strings.Builder, node *yaml.Node, indent string) error {
	switch node.Kind {
	case yaml.MappingNode:
		return writeJSONGroup(out, node, "{", "}", indent, 2)
	case yaml.SequenceNode:
		return writeJSONGroup(out, node, "[", "]", indent, 1)
	case yaml.AliasNode:
		return writeJSON(out, node.Alias, indent)
	case yaml.ScalarNode:
		return writeJSONScalar(out, node)
	}
	return errors.New("write JSON: unexpected YAML")
}

// writeJSONGroup writes the children of node; step is 2 where keys and values alternate.
func writeJSONGroup(out *strings.Builder, node *yaml.Node, open, end, indent string, step int) error {
	out.WriteString(open)
	for i := 0; i+step <= len(node.Content); i += step {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString(indent + "  ")
		if step == 2 {
			if err := writeJSONText(out, node.Content[i].Value); err != nil {
				return err
			}
			out.WriteString(": ")
		}
		if err := writeJSON(out, node.Content[i+step-1], indent+"  "); err != nil {
			return err
		}
	}
	if len(node.Content) > 0 {
		out.WriteString(indent)
	}
	out.WriteString(end)
	return nil
}

func writeJSONScalar(out *strings.Builder, node *yaml.Node) error {
	if node.ShortTag() == yaml.NodeTagString {
		return writeJSONText(out, node.Value)
	}
	var value any
	if err := node.Decode(&value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	out.Write(text)
	return nil
}

func writeJSONText(out *strings.Builder, value string) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	out.WriteString(strings.TrimSuffix(text.String(), "\n"))
	return nil
}
