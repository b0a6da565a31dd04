// Package kptfile reads the root Kptfile of a package and sets conditions in its status. It edits by byte ranges and never
// serialises anew: whatever other people wrote stays as it is, byte for byte.
package kptfile

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrNotEditable says that a Kptfile cannot be read, or is written in a way that Kiln does not edit: as JSON, with anchors
// in its status, or with line breaks of other kinds than LF and CRLF.
var ErrNotEditable = errors.New("the Kptfile cannot be edited")

// Condition is an item of the Kptfile's status.conditions.
type Condition struct {
	Type    string
	Status  string
	Reason  string
	Message string
}

// document is a parsed Kptfile with its lines.
type document struct {
	// lines hold their line breaks.
	lines []string
	root  *yaml.Node
	// status are the key and the value of the top-level status; nil if there is none.
	statusKey, status *yaml.Node
	// statusStart and statusEnd are the lines that status takes up, [statusStart, statusEnd).
	statusStart, statusEnd int
	// end is the line behind the last one of the document: that of an end marker, or behind the text.
	end int
}

// WithoutStatus is the text without its top-level status and without line breaks and blanks at its end: what a digest is
// taken of. ok is false when the text cannot be read that way.
func WithoutStatus(content string) (text string, ok bool) {
	doc, err := parse(content)
	if err != nil {
		return "", false
	}
	if doc.status != nil {
		content = strings.Join(doc.lines[:doc.statusStart], "") + strings.Join(doc.lines[doc.statusEnd:], "")
	}
	return strings.TrimRight(content, "\r\n \t"), true
}

// Conditions are the items of status.conditions; fields of them that are no text are left empty.
func Conditions(content string) ([]Condition, error) {
	doc, err := parse(content)
	if err != nil {
		return nil, err
	}
	var conditions []Condition
	for _, item := range doc.conditionNodes() {
		conditions = append(conditions, conditionOf(item))
	}
	return conditions, nil
}

// Annotations are the Kptfile's metadata.annotations; nil if it has none or cannot be read.
func Annotations(content string) map[string]string {
	doc, err := parse(content)
	if err != nil {
		return nil
	}
	_, metadata := field(doc.root, "metadata")
	_, annotations := field(metadata, "annotations")
	if annotations == nil || annotations.Kind != yaml.MappingNode {
		return nil
	}
	found := map[string]string{}
	for i := 0; i+1 < len(annotations.Content); i += 2 {
		if annotations.Content[i+1].Kind == yaml.ScalarNode {
			found[annotations.Content[i].Value] = annotations.Content[i+1].Value
		}
	}
	return found
}

// foreignBreaks are line breaks that YAML knows and that this package does not count.
var foreignBreaks = regexp.MustCompile("\r[^\n]|\r$|[\u0085\u2028\u2029]")

func parse(content string) (*document, error) {
	if foreignBreaks.MatchString(content) {
		return nil, fmt.Errorf("%w: it has line breaks of other kinds than LF and CRLF", ErrNotEditable)
	}
	decoder := yaml.NewDecoder(strings.NewReader(content))
	var file yaml.Node
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEditable, err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it has more than one document", ErrNotEditable)
	}
	root := file.Content[0]
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 || root.Anchor != "" {
		return nil, fmt.Errorf("%w: it is not a mapping in block style", ErrNotEditable)
	}
	doc := &document{lines: strings.SplitAfter(content, "\n"), root: root}
	if last := len(doc.lines) - 1; doc.lines[last] == "" {
		doc.lines = doc.lines[:last]
	}
	return doc, doc.findStatus()
}

// findStatus finds the lines of the top-level status.
func (d *document) findStatus() error {
	d.end = len(d.lines)
	for i := d.root.Line; i < d.end; i++ {
		if marker := strings.TrimRight(d.lines[i], "\r\n \t"); marker == "..." || marker == "---" {
			d.end = i
		}
	}
	next := d.end
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		key := d.root.Content[i]
		switch {
		case key.Value == "status" && d.status != nil:
			return fmt.Errorf("%w: it has two fields named status", ErrNotEditable)
		case key.Value == "status":
			d.statusKey, d.status = key, d.root.Content[i+1]
		case d.status != nil && next == d.end:
			next = key.Line - 1
		}
	}
	if d.status == nil {
		return nil
	}
	if !strings.HasPrefix(strings.TrimLeft(d.lines[d.statusKey.Line-1], " "), "status") {
		return fmt.Errorf("%w: its status does not begin a line", ErrNotEditable)
	}
	if hasAnchors(d.status) {
		return fmt.Errorf("%w: its status has anchors or aliases", ErrNotEditable)
	}
	d.statusStart = d.statusKey.Line - 1
	// Blank lines, and comments that stand as far out as the fields of the root, belong to what follows.
	indent := strings.Repeat(" ", d.statusKey.Column)
	for next > d.statusStart+1 {
		line := strings.TrimRight(d.lines[next-1], "\r\n \t")
		if line != "" && (!strings.HasPrefix(strings.TrimLeft(line, " "), "#") || strings.HasPrefix(line, indent)) {
			break
		}
		next--
	}
	d.statusEnd = next
	return nil
}

func hasAnchors(node *yaml.Node) bool {
	if node.Anchor != "" || node.Kind == yaml.AliasNode {
		return true
	}
	for _, child := range node.Content {
		if hasAnchors(child) {
			return true
		}
	}
	return false
}

// field is the key and the value of a field of a mapping, or nils.
func field(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func (d *document) conditionNodes() []*yaml.Node {
	_, conditions := field(d.status, "conditions")
	if conditions == nil || conditions.Kind != yaml.SequenceNode {
		return nil
	}
	return conditions.Content
}

func conditionOf(item *yaml.Node) Condition {
	text := func(name string) string {
		if _, value := field(item, name); value != nil && value.Kind == yaml.ScalarNode {
			return value.Value
		}
		return ""
	}
	return Condition{Type: text("type"), Status: text("status"), Reason: text("reason"), Message: text("message")}
}
