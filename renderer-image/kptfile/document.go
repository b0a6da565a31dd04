package kptfile

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const byteOrderMark = "\ufeff"

// foreignBreaks are line breaks that YAML knows and that this package does not count.
var foreignBreaks = regexp.MustCompile("\r[^\n]|\r$|[\u0085\u2028\u2029]")

func hasForeignBreaks(text string) bool {
	return !utf8.ValidString(text) || foreignBreaks.MatchString(text)
}

// span is a range of bytes of the text.
type span struct{ start, end int }

// document is a parsed Kptfile that knows where in the text its parts are.
type document struct {
	// mark is a byte order mark or nothing, text all behind it.
	mark, text string
	// lines are where the lines begin, and the text's end.
	lines []int
	root  *yaml.Node
	// statusKey and status are the key and the value of the top-level status; nil if there is none.
	statusKey, status *yaml.Node
	// statusSpan is what has to go for the status to be gone: whole lines, or in flow style also a comma.
	statusSpan span
	// end is where the document ends: at its end marker, or with the text.
	end int
	// found is the last position that offset found. Nodes are mostly looked up in their order; to count the characters of
	// a long line from its beginning for each of them would take minutes.
	found struct{ line, column, offset int }
}

func newDocument(content string) *document {
	text := strings.TrimPrefix(content, byteOrderMark)
	d := &document{mark: content[:len(content)-len(text)], text: text, end: len(text)}
	at := 0
	for line := range strings.Lines(text) {
		d.lines = append(d.lines, at)
		at += len(line)
	}
	d.lines = append(d.lines, at)
	return d
}

func isFlow(node *yaml.Node) bool { return node.Style&yaml.FlowStyle != 0 }

// withoutStatus ends in a line break, because what is appended to a text without one adds it.
func (d *document) withoutStatus() string {
	text := d.text[:d.statusSpan.start] + d.text[d.statusSpan.end:]
	if text != "" && !isFlow(d.root) && !strings.HasSuffix(text, "\n") {
		text += d.lineBreak()
	}
	return d.mark + text
}

// lineBreak is the kind of line break that the text has.
func (d *document) lineBreak() string {
	if len(d.lines) > 1 && strings.HasSuffix(d.text[:d.lines[1]], "\r\n") {
		return "\r\n"
	}
	return "\n"
}

// lineOf is where the node's line begins.
func (d *document) lineOf(node *yaml.Node) int { return d.lines[node.Line-1] }

// lineAfter is where the line behind the one with the byte begins.
func (d *document) lineAfter(at int) int {
	if i := strings.IndexByte(d.text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(d.text)
}

// offset is where the node begins; its column counts characters.
func (d *document) offset(node *yaml.Node) int {
	if node.Line != d.found.line || node.Column < d.found.column {
		d.found.line, d.found.column, d.found.offset = node.Line, 1, d.lineOf(node)
	}
	for ; d.found.column < node.Column; d.found.column++ {
		_, size := utf8.DecodeRuneInString(d.text[d.found.offset:])
		d.found.offset += size
	}
	return d.found.offset
}

// findStatus finds the top-level status and refuses what would make an edit ambiguous.
func (d *document) findStatus() error {
	d.findEnd()
	next := d.end
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		key := d.root.Content[i]
		switch {
		case isKey(key, "status") && d.status != nil:
			return fmt.Errorf("%w: it has two fields named status", ErrNotEditable)
		case isKey(key, "status"):
			d.statusKey, d.status = key, d.root.Content[i+1]
		case d.status != nil && next == d.end:
			next = d.lineOf(key)
		}
	}
	if d.status == nil {
		return nil
	}
	if err := checkStatus(d.status); err != nil {
		return err
	}
	if isFlow(d.root) {
		return d.findFlowStatus()
	}
	if !d.beginsLine(d.statusKey) {
		return fmt.Errorf("%w: its status does not begin a line", ErrNotEditable)
	}
	d.statusSpan = d.blockSpan(d.lineOf(d.statusKey), next, d.statusKey.Column)
	// Blank lines behind it go with it: without it, the text of the field before could take them for its own.
	for at := d.statusSpan.end; at < next && strings.TrimSpace(d.text[at:d.lineAfter(at)]) == ""; at = d.lineAfter(at) {
		d.statusSpan.end = min(d.lineAfter(at), next)
	}
	return nil
}

// findEnd looks for an end marker behind the root; within it there can be none.
func (d *document) findEnd() {
	for _, start := range d.lines[d.root.Line : len(d.lines)-1] {
		line := d.text[start:d.lineAfter(start)]
		if marker := strings.TrimRight(line, "\r\n \t"); marker == "..." || strings.HasPrefix(line, "... ") || strings.HasPrefix(line, "...\t") {
			d.end = start
			return
		}
	}
}

// checkStatus refuses anchors and aliases anywhere in the status, and repeated fields where conditions are.
func checkStatus(status *yaml.Node) error {
	if hasAnchors(status) {
		return fmt.Errorf("%w: its status has anchors or aliases", ErrNotEditable)
	}
	mappings := []*yaml.Node{status}
	if conditions := valueOf(status, "conditions"); conditions != nil {
		mappings = append(mappings, conditions.Content...)
	}
	for _, mapping := range mappings {
		if mapping.Kind != yaml.MappingNode {
			continue
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			name := mapping.Content[i].Value
			if seen[name] {
				return fmt.Errorf("%w: line %d: its status has two fields named %q in one place", ErrNotEditable, mapping.Content[i].Line, name)
			}
			seen[name] = true
		}
	}
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

// conditionItems are the items of status.conditions.
func (d *document) conditionItems() []*yaml.Node {
	conditions := valueOf(d.status, "conditions")
	if conditions == nil || conditions.Kind != yaml.SequenceNode {
		return nil
	}
	return conditions.Content
}

// beginsLine says whether only blanks are before the node on its line.
func (d *document) beginsLine(node *yaml.Node) bool {
	return strings.Trim(d.text[d.lineOf(node):d.offset(node)], " ") == ""
}

// blockSpan is what belongs to a field or item that begins on the line at start, stands at column and has the next one, or
// its parent's end, at next. Blank lines, and comments that stand as far out as it does, belong to what follows.
func (d *document) blockSpan(start, next, column int) span {
	end := d.lineAfter(start)
	for at := end; at < next; {
		after := min(d.lineAfter(at), next)
		line := strings.TrimRight(d.text[at:after], "\r\n \t")
		body := strings.TrimLeft(line, " ")
		if body != "" && (body[0] != '#' || len(line)-len(body) >= column) {
			end = after
		}
		at = after
	}
	return span{start, end}
}

// findFlowStatus finds the status of a root in flow style. A comma before it goes with it, so that appending a status
// changes nothing else; if it is the first field, all up to the next one does.
func (d *document) findFlowStatus() error {
	fields, _, err := d.flowEntries(d.root)
	if err != nil {
		return err
	}
	for i := range fields {
		if d.root.Content[2*i] != d.statusKey {
			continue
		}
		switch {
		case i > 0:
			d.statusSpan = span{fields[i-1].end, fields[i].end}
		case len(fields) > 1:
			d.statusSpan = span{fields[0].start, fields[1].start}
		default:
			d.statusSpan = fields[0]
		}
	}
	// What was next to it must not mean something else next to each other, as "a:" and "," do.
	rest, err := decode(d.withoutStatus()[len(d.mark):])
	if err != nil || fieldsBut(rest.Content[0], "status") != fieldsBut(d.root, "status") {
		return fmt.Errorf("%w: its status cannot be told from the rest", ErrNotEditable)
	}
	return nil
}
