package kptfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SetConditions sets conditions in status.conditions, each in the place of the one of its type or else behind the others,
// and removes those of the types in drop. All else stays byte for byte; only a status in flow style is written anew in
// block style. A Kptfile that says all of it already is returned as it is.
func SetConditions(content string, set []Condition, drop ...string) (string, error) {
	doc, err := parse(content)
	if err != nil {
		return "", err
	}
	if doc.says(set, drop) {
		return content, nil
	}
	var edited string
	switch items, ok := doc.blockItems(); {
	case doc.status == nil && len(set) == 0:
		return content, nil
	case ok && anyLeft(items, set, drop):
		edited = doc.replaceItems(items, set, drop)
	default:
		if edited, err = doc.rewriteStatus(set, drop); err != nil {
			return "", err
		}
	}
	return edited, doc.check(content, edited, set, drop)
}

// says tells whether nothing would change.
func (d *document) says(set []Condition, drop []string) bool {
	seen := map[string]bool{}
	for _, item := range d.conditionNodes() {
		c := conditionOf(item)
		if slices.Contains(drop, c.Type) {
			return false
		}
		for _, wanted := range set {
			if wanted.Type == c.Type && (wanted != c || seen[c.Type]) {
				return false
			}
		}
		seen[c.Type] = true
	}
	for _, wanted := range set {
		if !seen[wanted.Type] {
			return false
		}
	}
	return true
}

// item is a condition in block style: the lines it takes up.
type item struct {
	start, end int
	condition  Condition
}

// blockItems are the items of conditions, provided status and conditions are in block style, each item beginning a line.
func (d *document) blockItems() ([]item, bool) {
	if d.status == nil || d.status.Kind != yaml.MappingNode || d.status.Style&yaml.FlowStyle != 0 || d.status.Line == d.statusKey.Line {
		return nil, false
	}
	key, conditions := field(d.status, "conditions")
	if conditions == nil || conditions.Kind != yaml.SequenceNode || conditions.Style&yaml.FlowStyle != 0 || len(conditions.Content) == 0 || conditions.Line == key.Line {
		return nil, false
	}
	end := d.statusEnd
	for i := 0; i+1 < len(d.status.Content); i += 2 {
		if sibling := d.status.Content[i]; sibling.Line > key.Line && sibling.Line-1 < end {
			end = sibling.Line - 1
		}
	}
	dash := strings.Repeat(" ", conditions.Column-1) + "- "
	var items []item
	for i, node := range conditions.Content {
		start := node.Line - 1
		if !strings.HasPrefix(d.lines[start], dash) {
			return nil, false
		}
		if i > 0 {
			items[i-1].end = d.withoutHead(items[i-1].start, start)
		}
		items = append(items, item{start: start, condition: conditionOf(node)})
	}
	items[len(items)-1].end = d.withoutHead(items[len(items)-1].start, end)
	return items, true
}

// withoutHead moves an end up over the comments and blank lines that belong to what follows.
func (d *document) withoutHead(start, end int) int {
	for end > start+1 {
		line := strings.TrimSpace(d.lines[end-1])
		if line != "" && !strings.HasPrefix(line, "#") {
			break
		}
		end--
	}
	return end
}

// anyLeft says whether there will be any condition: a sequence in block style cannot be empty.
func anyLeft(items []item, set []Condition, drop []string) bool {
	return len(set) > 0 || slices.ContainsFunc(items, func(it item) bool { return !slices.Contains(drop, it.condition.Type) })
}

func (d *document) replaceItems(items []item, set []Condition, drop []string) string {
	_, conditions := field(d.status, "conditions")
	indent := strings.Repeat(" ", conditions.Column-1)
	var out strings.Builder
	written := map[string]bool{}
	at := 0
	copyTo := func(end int) {
		out.WriteString(strings.Join(d.lines[at:end], ""))
		at = end
	}
	for _, it := range items {
		copyTo(it.start)
		wanted := slices.IndexFunc(set, func(c Condition) bool { return c.Type == it.condition.Type })
		switch {
		case slices.Contains(drop, it.condition.Type), wanted >= 0 && written[it.condition.Type]:
			at = it.end
		case wanted >= 0 && set[wanted] != it.condition:
			written[it.condition.Type] = true
			out.WriteString(d.format(set[wanted], indent))
			at = it.end
		default:
			written[it.condition.Type] = true
			copyTo(it.end)
		}
	}
	d.ensureBreak(&out)
	for _, c := range set {
		if !written[c.Type] {
			out.WriteString(d.format(c, indent))
		}
	}
	copyTo(len(d.lines))
	return out.String()
}

// rewriteStatus writes a status that is absent, empty or in flow style; the values of its other fields are kept.
func (d *document) rewriteStatus(set []Condition, drop []string) (string, error) {
	start, end := d.end, d.end
	margin := strings.Repeat(" ", d.root.Column-1)
	if d.status != nil {
		start, end = d.statusStart, d.statusEnd
	}
	var out strings.Builder
	out.WriteString(strings.Join(d.lines[:start], ""))
	d.ensureBreak(&out)

	out.WriteString(margin + "status:" + d.lineBreak())
	var kept []Condition
	for _, node := range d.conditionNodes() {
		if c := conditionOf(node); !slices.Contains(drop, c.Type) && !slices.ContainsFunc(set, func(s Condition) bool { return s.Type == c.Type }) {
			kept = append(kept, c)
		}
	}
	all := append(kept, set...)
	if len(all) == 0 {
		out.WriteString(margin + "  conditions: []" + d.lineBreak())
	} else {
		out.WriteString(margin + "  conditions:" + d.lineBreak())
	}
	for _, c := range all {
		out.WriteString(d.format(c, margin+"  "))
	}
	others, err := d.otherFields(margin + "  ")
	if err != nil {
		return "", err
	}
	out.WriteString(others)
	out.WriteString(strings.Join(d.lines[end:], ""))
	return out.String(), nil
}

// otherFields are the fields of the status but for its conditions, in block style.
func (d *document) otherFields(indent string) (string, error) {
	if d.status == nil || d.status.Kind != yaml.MappingNode {
		return "", nil
	}
	others := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(d.status.Content); i += 2 {
		if d.status.Content[i].Value != "conditions" {
			others.Content = append(others.Content, d.status.Content[i], d.status.Content[i+1])
		}
	}
	if len(others.Content) == 0 {
		return "", nil
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(others); err != nil {
		return "", fmt.Errorf("%w: write its status: %w", ErrNotEditable, err)
	}
	var out strings.Builder
	for line := range strings.Lines(text.String()) {
		if line != "\n" {
			out.WriteString(indent)
		}
		out.WriteString(strings.TrimSuffix(line, "\n") + d.lineBreak())
	}
	return out.String(), nil
}

func (d *document) lineBreak() string {
	if strings.HasSuffix(d.lines[0], "\r\n") {
		return "\r\n"
	}
	return "\n"
}

func (d *document) ensureBreak(out *strings.Builder) {
	if text := out.String(); text != "" && !strings.HasSuffix(text, "\n") {
		out.WriteString(d.lineBreak())
	}
}

// format is a condition as an item in block style.
func (d *document) format(c Condition, indent string) string {
	br := d.lineBreak()
	text := indent + "- type: " + scalar(c.Type) + br + indent + "  status: " + quoted(c.Status) + br
	if c.Reason != "" {
		text += indent + "  reason: " + scalar(c.Reason) + br
	}
	if c.Message != "" {
		text += indent + "  message: " + quoted(c.Message) + br
	}
	return text
}

// plain are words that YAML cannot take for anything but text.
var plain = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{5,}$`)

func scalar(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return quoted(text)
}

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

// check holds the edited text against what was to be done, so that a Kptfile of an unforeseen shape is refused, not spoilt.
func (d *document) check(content, edited string, set []Condition, drop []string) error {
	before, okBefore := WithoutStatus(content)
	after, okAfter := WithoutStatus(edited)
	if !okBefore || !okAfter || before != after {
		return fmt.Errorf("%w: its status cannot be told from the rest", ErrNotEditable)
	}
	now, err := parse(edited)
	if err != nil {
		return err
	}
	if !now.says(set, drop) {
		return fmt.Errorf("%w: its conditions cannot be told apart", ErrNotEditable)
	}
	return nil
}
