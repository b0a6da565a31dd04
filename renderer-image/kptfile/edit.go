package kptfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SetConditions sets conditions in status.conditions, each in the place of the first one of its type or else behind the
// others, and removes those of the types in drop. Each type may be given once. All else stays byte for byte, apart from a
// line break that the last line lacks, and from kpt's renderStatus, which goes when the condition Rendered that it explains is
// set or removed. A Kptfile that says all of it already is returned as it is. What is not UTF-8 in a
// condition is replaced, as YAML cannot hold it.
func SetConditions(content string, set []Condition, drop ...string) (string, error) {
	d, err := parse(content)
	if err != nil {
		return "", err
	}
	w := wish{set: make([]Condition, len(set)), drop: drop}
	for i, c := range set {
		w.set[i] = Condition{validText(c.Type), validText(c.Status), validText(c.Reason), validText(c.Message)}
	}
	if err := w.check(); err != nil {
		return "", err
	}
	if w.isTrueOf(d) {
		return content, nil
	}
	e := &editor{document: d, wish: w, style: styleOf(d.root)}
	if err := e.edit(); err != nil {
		return "", err
	}
	e.dropRenderStatus() // Last: what is inserted in front of it begins at the same byte.
	edited := d.mark + e.apply()
	return edited, e.verify(edited)
}

func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// wish is what the conditions shall be.
type wish struct {
	set  []Condition
	drop []string
}

func (w wish) check() error {
	types := slices.Clone(w.drop)
	for _, c := range w.set {
		types = append(types, c.Type)
	}
	slices.Sort(types)
	for i := 1; i < len(types); i++ {
		if types[i] == types[i-1] {
			return fmt.Errorf("set conditions: the type %q is given twice", types[i])
		}
	}
	return nil
}

// isTrueOf tells whether nothing would change.
func (w wish) isTrueOf(d *document) bool {
	if w.staleRenderStatus(d) != nil {
		return false
	}
	seen := map[string]bool{}
	for _, item := range d.conditionItems() {
		c := conditionOf(item)
		if slices.Contains(w.drop, c.Type) {
			return false
		}
		if i := w.index(c.Type); i >= 0 && (w.set[i] != c || seen[c.Type]) {
			return false
		}
		seen[c.Type] = true
	}
	return !slices.ContainsFunc(w.set, func(c Condition) bool { return !seen[c.Type] })
}

func (w wish) index(conditionType string) int {
	return slices.IndexFunc(w.set, func(c Condition) bool { return c.Type == conditionType })
}

// fate is what becomes of a condition that is there: it stays, or is replaced by others; by none if it is dropped.
type fate struct {
	stays bool
	by    []Condition
}

// fates are those of the items in their order, and the conditions to add behind them.
func (w wish) fates(items []*yaml.Node) (fates []fate, add []Condition) {
	seen := map[string]bool{}
	for _, item := range items {
		c := conditionOf(item)
		i := w.index(c.Type)
		switch {
		case slices.Contains(w.drop, c.Type), i >= 0 && seen[c.Type]:
			fates = append(fates, fate{})
		case i < 0 || w.set[i] == c:
			fates = append(fates, fate{stays: true})
		default:
			fates = append(fates, fate{by: w.set[i : i+1]})
		}
		seen[c.Type] = true
	}
	for _, c := range w.set {
		if !seen[c.Type] {
			add = append(add, c)
		}
	}
	return fates, add
}

// editor collects the replacements of ranges that make the wish true.
type editor struct {
	*document
	wish  wish
	style style
	edits []replacement
}

type replacement struct {
	span
	text string
}

func (e *editor) replace(start, end int, text string) {
	e.edits = append(e.edits, replacement{span{start, end}, text})
}

func (e *editor) insert(at int, text string) { e.replace(at, at, text) }

func (e *editor) apply() string {
	slices.SortStableFunc(e.edits, func(a, b replacement) int { return cmp.Compare(a.start, b.start) })
	var out strings.Builder
	at := 0
	for _, r := range e.edits {
		out.WriteString(e.text[at:r.start])
		out.WriteString(r.text)
		at = r.end
	}
	out.WriteString(e.text[at:])
	return out.String()
}

// edit goes from the root to the conditions, and writes what is missing on the way.
func (e *editor) edit() error {
	if isFlow(e.root) {
		return e.editFlowMapping(e.root, "status")
	}
	margin := strings.Repeat(" ", e.root.Column-1)
	inner := margin + e.style.step
	switch status := e.status; {
	case status == nil:
		e.insertLines(e.end, margin+"status:"+e.lineBreak()+e.blockConditions(inner))
		return nil
	case e.isBlank(status):
		return e.fillBlank(e.statusKey, status, e.blockConditions(inner))
	case status.Kind != yaml.MappingNode:
		return fmt.Errorf("%w: its status is not a mapping", ErrNotEditable)
	case isFlow(status):
		return e.editFlowMapping(status, "conditions")
	}
	return e.editBlockStatus()
}

func (e *editor) editBlockStatus() error {
	inner := strings.Repeat(" ", e.status.Column-1)
	key, conditions := field(e.status, "conditions")
	switch {
	case key == nil:
		// In front of the other fields: nothing that is there can take it for a part of itself.
		e.insertLines(e.lineAfter(e.offset(e.statusKey)), e.blockConditions(inner))
		return nil
	case e.isBlank(conditions):
		return e.fillBlank(key, conditions, e.blockItems(e.wish.set, inner+e.style.dash))
	case conditions.Kind != yaml.SequenceNode:
		return fmt.Errorf("%w: its status.conditions are not a list", ErrNotEditable)
	case isFlow(conditions):
		return e.editFlowItems(conditions)
	}
	return e.editBlockItems(key, conditions)
}

// editBlockItems replaces whole lines, one item's at a time.
func (e *editor) editBlockItems(key, conditions *yaml.Node) error {
	spans, err := e.blockItemSpans(key, conditions)
	if err != nil {
		return err
	}
	indent := strings.Repeat(" ", conditions.Column-1)
	fates, add := e.wish.fates(conditions.Content)
	left := len(add)
	for i, f := range fates {
		if f.stays {
			left++
			continue
		}
		left += len(f.by)
		e.replace(spans[i].start, spans[i].end, e.blockItems(f.by, indent))
	}
	if left == 0 { // A list in block style cannot be empty.
		colon, err := e.colon(key)
		if err != nil {
			return err
		}
		e.insert(colon+1, " []")
	}
	e.insertLines(spans[len(spans)-1].end, e.blockItems(add, indent))
	return nil
}

// blockItemSpans are the lines of each item.
func (e *editor) blockItemSpans(key, conditions *yaml.Node) ([]span, error) {
	next := e.statusSpan.end
	for i := 0; i+1 < len(e.status.Content); i += 2 {
		if sibling := e.status.Content[i]; sibling.Line > key.Line {
			next = min(next, e.lineOf(sibling))
		}
	}
	end := e.blockSpan(e.lineOf(key), next, key.Column).end
	dash := strings.Repeat(" ", conditions.Column-1) + "-"
	spans := make([]span, len(conditions.Content))
	for i, item := range slices.Backward(conditions.Content) {
		line := item.Line
		// An item may begin on a line below its dash.
		for line > key.Line && !strings.HasPrefix(e.text[e.lines[line-1]:], dash) {
			line--
		}
		if line <= key.Line || e.lines[line-1] >= end {
			return nil, fmt.Errorf("%w: line %d: the condition does not begin a line", ErrNotEditable, item.Line)
		}
		spans[i] = e.blockSpan(e.lines[line-1], end, conditions.Column)
		end = spans[i].start
	}
	return spans, nil
}

// insertLines inserts lines where a line begins, or ends the last one first.
func (e *editor) insertLines(at int, lines string) {
	if lines != "" && at > 0 && e.text[at-1] != '\n' {
		lines = e.lineBreak() + lines
	}
	e.insert(at, lines)
}

// isBlank tells whether a value is null or empty brackets.
func (e *editor) isBlank(value *yaml.Node) bool {
	if isNull(value) {
		return true
	}
	return isFlow(value) && len(value.Content) == 0
}

// fillBlank puts lines in the place of a blank value, below the line of its key. A comment stays on that line.
func (e *editor) fillBlank(key, value *yaml.Node, lines string) error {
	colon, err := e.colon(key)
	if err != nil {
		return err
	}
	end := colon + 1
	if isFlow(value) || value.Value != "" {
		start := e.offset(value)
		if end = start + len(value.Value); isFlow(value) {
			_, end = scanFlow(e.text, start)
		}
		if end < start || strings.TrimSpace(e.text[colon+1:start]) != "" || strings.Contains(e.text[start:end], "#") {
			return fmt.Errorf("%w: line %d: the value of %s is not understood", ErrNotEditable, key.Line, key.Value)
		}
		e.replace(colon+1, end, "")
	}
	e.insertLines(e.lineAfter(end), lines)
	return nil
}

// colon is where the colon behind a key is.
func (e *editor) colon(key *yaml.Node) (int, error) {
	at := e.offset(key)
	if e.text[at] == '"' || e.text[at] == '\'' {
		at = quoteEnd(e.text, at) + 1
	} else {
		at += len(key.Value)
	}
	at += len(e.text[at:]) - len(strings.TrimLeft(e.text[at:], " \t"))
	if !strings.HasPrefix(e.text[at:], ":") {
		return 0, fmt.Errorf("%w: line %d: no colon follows %s", ErrNotEditable, key.Line, key.Value)
	}
	return at, nil
}

// editFlowMapping edits the field of a mapping in flow style: the status of the root, or the conditions of the status.
func (e *editor) editFlowMapping(mapping *yaml.Node, name string) error {
	fields, _, err := e.flowEntries(mapping)
	if err != nil {
		return err
	}
	value := valueOf(mapping, name)
	switch {
	case value == nil:
		e.addFlow(e.offset(mapping), fields, e.flowField(name))
	case isNull(value):
		i := slices.IndexFunc(mapping.Content, func(n *yaml.Node) bool { return n == value }) / 2
		e.replace(fields[i].start, fields[i].end, e.flowField(name))
	case !isFlow(value):
		return fmt.Errorf("%w: line %d: %s is not what it must be", ErrNotEditable, value.Line, name)
	case name == "status" && value.Kind == yaml.MappingNode:
		return e.editFlowMapping(value, "conditions")
	case name == "conditions" && value.Kind == yaml.SequenceNode:
		return e.editFlowItems(value)
	default:
		return fmt.Errorf("%w: line %d: %s is not what it must be", ErrNotEditable, value.Line, name)
	}
	return nil
}

// editFlowItems replaces items in flow style; commas go with the items that go.
func (e *editor) editFlowItems(conditions *yaml.Node) error {
	items, end, err := e.flowEntries(conditions)
	if err != nil {
		return err
	}
	open := e.offset(conditions)
	fates, add := e.wish.fates(conditions.Content)
	last := -1 // The last one that does not go.
	for i, f := range fates {
		if !f.stays && len(f.by) == 0 {
			continue
		}
		if !f.stays {
			e.replace(items[i].start, items[i].end, e.flowItems(f.by))
		}
		if i > last+1 {
			e.replace(items[last+1].start, items[i].start, "")
		}
		last = i
	}
	if last < 0 && len(items) > 0 {
		e.replace(open+1, end-1, e.flowItems(add))
		return nil
	}
	if last < len(items)-1 {
		e.replace(items[last].end, items[len(items)-1].end, "")
	}
	if len(add) > 0 {
		e.addFlow(open, items[:last+1], e.flowItems(add))
	}
	return nil
}

// addFlow adds text behind the last entry of a collection in flow style, on a line of its own if that has one.
func (e *editor) addFlow(open int, entries []span, text string) {
	if len(entries) == 0 {
		e.insert(open+1, text)
		return
	}
	last := entries[len(entries)-1]
	lineStart := strings.LastIndexByte(e.text[:last.start], '\n') + 1
	indent := e.text[lineStart:last.start]
	if lineStart > 0 && strings.TrimSpace(indent) == "" {
		e.insert(last.end, ","+e.lineBreak()+indent+text)
		return
	}
	e.insert(last.end, ", "+text)
}
