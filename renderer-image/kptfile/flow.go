package kptfile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// flowEntries finds where the fields or items of a collection in flow style are, and where it ends. What its scanner cannot
// make the same sense of as the parser is refused.
func (d *document) flowEntries(node *yaml.Node) (entries []span, end int, err error) {
	want := node.Content
	if node.Kind == yaml.MappingNode {
		want = nil
		for i := 0; i < len(node.Content); i += 2 {
			want = append(want, node.Content[i])
		}
	}
	entries, end = scanFlow(d.text, d.offset(node))
	ok := end >= 0 && len(entries) == len(want)
	for i := 0; ok && i < len(want); i++ {
		at := d.offset(want[i])
		ok = entries[i].start <= at && at <= entries[i].end
	}
	if !ok {
		return nil, 0, fmt.Errorf("%w: line %d: its brackets are not understood", ErrNotEditable, node.Line)
	}
	return entries, end, nil
}

// scanFlow splits the collection whose bracket is at start. end is negative if there is none.
func scanFlow(text string, start int) (entries []span, end int) {
	if start >= len(text) || text[start] != '{' && text[start] != '[' {
		return nil, -1
	}
	entry := span{start: -1}
	finish := func() {
		if entry.start >= 0 {
			entries = append(entries, entry)
		}
		entry = span{start: -1}
	}
	depth, last := 1, text[start] // last is the last byte that is neither blank nor in a comment.
	for at := start + 1; at < len(text); at++ {
		c := text[at]
		first := at
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		case c == '#' && strings.IndexByte(" \t\n,[{", text[at-1]) >= 0:
			if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
				at += i
				continue
			}
			return nil, -1
		case (c == '"' || c == '\'') && strings.IndexByte("{[,:?", last) >= 0:
			if at = quoteEnd(text, at); at < 0 {
				return nil, -1
			}
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				finish()
				return entries, at + 1
			}
		case c == ',' && depth == 1:
			finish()
			last = c
			continue
		}
		last = c
		if entry.start < 0 {
			entry.start = first
		}
		entry.end = at + 1
	}
	return nil, -1
}

// quoteEnd is the index of the quote that closes the one at start, or negative.
func quoteEnd(text string, start int) int {
	for at := start + 1; at < len(text); at++ {
		switch {
		case text[at] == '\\' && text[start] == '"':
			at++
		case text[at] != text[start]:
		case text[start] == '\'' && strings.HasPrefix(text[at+1:], "'"):
			at++
		default:
			return at
		}
	}
	return -1
}
