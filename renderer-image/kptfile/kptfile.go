// Package kptfile reads the root Kptfile of a package and sets conditions in its status. It edits by byte ranges and never
// serialises anew: whatever other people wrote stays as it is, byte for byte.
//
// Kptfiles are untrusted. Aliases are never followed, so nothing expands, and a parser that crashes is an error here.
package kptfile

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrNotEditable says that a Kptfile cannot be read, or is written in a way that Kiln does not edit: with more than one
// document, with anchors or a repeated field in its status, or with line breaks of other kinds than LF and CRLF.
var ErrNotEditable = errors.New("the Kptfile cannot be edited")

// Condition is an item of the Kptfile's status.conditions.
type Condition struct {
	Type    string
	Status  string
	Reason  string
	Message string
}

// WithoutStatus is the text without its top-level status, and with a line break at its end: what a digest is taken of. ok is
// false when the text cannot be read that way.
func WithoutStatus(content string) (text string, ok bool) {
	d, err := parse(content)
	if err != nil {
		return "", false
	}
	return d.withoutStatus(), true
}

// Conditions are the items of status.conditions; fields of them that are no text are left empty.
func Conditions(content string) ([]Condition, error) {
	d, err := parse(content)
	if err != nil {
		return nil, err
	}
	var conditions []Condition
	for _, item := range d.conditionItems() {
		conditions = append(conditions, conditionOf(item))
	}
	return conditions, nil
}

func parse(content string) (*document, error) {
	if hasForeignBreaks(content) {
		return nil, fmt.Errorf("%w: it has line breaks of other kinds than LF and CRLF", ErrNotEditable)
	}
	d := newDocument(content)
	file, err := decode(d.text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEditable, err)
	}
	d.root = file.Content[0]
	if d.root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%w: it is not a mapping", ErrNotEditable)
	}
	return d, d.findStatus()
}

// decode reads the only document of a text.
func decode(text string) (file *yaml.Node, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("the YAML parser crashed: %v", problem)
		}
	}()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	file = &yaml.Node{}
	if err := decoder.Decode(file); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty")
		}
		return nil, err
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	return file, nil
}

// field is the key and the value of a field of a mapping, or nils.
func field(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if isKey(mapping.Content[i], name) {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func isKey(node *yaml.Node, name string) bool {
	return node.Kind == yaml.ScalarNode && node.Value == name
}

func valueOf(mapping *yaml.Node, name string) *yaml.Node {
	_, value := field(mapping, name)
	return value
}

// textOf is a field of a mapping as text; empty if it has none.
func textOf(mapping *yaml.Node, name string) string {
	value := valueOf(mapping, name)
	if value == nil || value.Kind != yaml.ScalarNode || isNull(value) {
		return ""
	}
	return value.Value
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

func conditionOf(item *yaml.Node) Condition {
	return Condition{
		Type:    textOf(item, "type"),
		Status:  textOf(item, "status"),
		Reason:  textOf(item, "reason"),
		Message: textOf(item, "message"),
	}
}
