package kptfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// style is how a Kptfile is indented.
type style struct {
	// step is what a mapping is further in than the one that holds it, dash what a list is further in than its field.
	step, dash string
}

// styleOf takes the style from the first mapping and the first list that are in fields of block style.
func styleOf(root *yaml.Node) style {
	s := style{step: "  "}
	var stepSeen, dashSeen bool
	var visit func(mapping *yaml.Node, depth int)
	visit = func(mapping *yaml.Node, depth int) {
		for i := 0; i+1 < len(mapping.Content) && depth < 8; i += 2 {
			value := mapping.Content[i+1]
			further := value.Column - mapping.Column
			if isFlow(value) || value.Line == mapping.Content[i].Line || further < 0 || further > 8 {
				continue
			}
			if value.Kind == yaml.SequenceNode && !dashSeen {
				s.dash, dashSeen = strings.Repeat(" ", further), true
			}
			if value.Kind == yaml.MappingNode && further > 0 {
				if !stepSeen {
					s.step, stepSeen = strings.Repeat(" ", further), true
				}
				visit(value, depth+1)
			}
		}
	}
	visit(root, 0)
	return s
}

// blockConditions is the field conditions with all that is to be set.
func (e *editor) blockConditions(indent string) string {
	return indent + "conditions:" + e.lineBreak() + e.blockItems(e.wish.set, indent+e.style.dash)
}

// blockItems are conditions as items in block style.
func (e *editor) blockItems(conditions []Condition, indent string) string {
	var out strings.Builder
	for _, c := range conditions {
		for i, f := range fieldsOf(c) {
			out.WriteString(indent + [...]string{"- ", "  "}[min(i, 1)] + f.name + ": " + f.text() + e.lineBreak())
		}
	}
	return out.String()
}

// flowField is the field status or conditions in flow style with all that is to be set.
func (e *editor) flowField(name string) string {
	conditions := e.flowKey("conditions") + "[" + e.flowItems(e.wish.set) + "]"
	if name == "status" {
		return e.flowKey("status") + "{" + conditions + "}"
	}
	return conditions
}

// flowItems are conditions as items in flow style.
func (e *editor) flowItems(conditions []Condition) string {
	var items []string
	for _, c := range conditions {
		var fields []string
		for _, f := range fieldsOf(c) {
			text := f.text()
			if isFlow(e.root) { // It may be JSON.
				text = quoted(f.value)
			}
			fields = append(fields, e.flowKey(f.name)+text)
		}
		items = append(items, "{"+strings.Join(fields, ", ")+"}")
	}
	return strings.Join(items, ", ")
}

func (e *editor) flowKey(name string) string {
	if isFlow(e.root) {
		return `"` + name + `": `
	}
	return name + ": "
}

type conditionField struct {
	name, value string
	// word is set where plain words are customary.
	word bool
}

func (f conditionField) text() string {
	if f.word && plain.MatchString(f.value) {
		return f.value
	}
	return quoted(f.value)
}

func fieldsOf(c Condition) []conditionField {
	fields := []conditionField{{"type", c.Type, true}, {"status", c.Status, false}}
	if c.Reason != "" {
		fields = append(fields, conditionField{"reason", c.Reason, true})
	}
	if c.Message != "" {
		fields = append(fields, conditionField{"message", c.Message, false})
	}
	return fields
}

// plain are words that YAML cannot take for anything but text.
var plain = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{5,}$`)

// quoted is a text in double quotes. JSON's escapes are YAML's, too; what YAML does not allow unescaped is escaped.
func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // A string always encodes.
	var safe strings.Builder
	for _, r := range strings.TrimSuffix(out.String(), "\n") {
		if r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&safe, `\u%04x`, r)
			continue
		}
		safe.WriteRune(r)
	}
	return safe.String()
}
