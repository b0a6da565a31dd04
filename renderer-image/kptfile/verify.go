package kptfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// verify holds the edited text against the wish, so that a Kptfile of an unforeseen shape is refused, not spoilt.
func (e *editor) verify(edited string) error {
	now, err := parse(edited)
	switch {
	case err != nil:
		return fmt.Errorf("%w: read after the edit: %w", ErrNotEditable, err)
	case now.withoutStatus() != e.withoutStatus():
		return fmt.Errorf("%w: its status cannot be told from the rest", ErrNotEditable)
	case !e.wish.isTrueOf(now):
		return fmt.Errorf("%w: its conditions cannot be told apart", ErrNotEditable)
	case e.wish.others(now) != e.wish.others(e.document):
		return fmt.Errorf("%w: its conditions cannot be told from the rest of its status", ErrNotEditable)
	}
	return nil
}

// others is all of the status that the wish is not about, in a form to compare.
func (w wish) others(d *document) string {
	var out strings.Builder
	if d.status != nil {
		names := []string{"conditions"}
		if w.staleRenderStatus(d) != nil {
			names = append(names, renderStatus)
		}
		out.WriteString(fieldsBut(d.status, names...))
	}
	fates, _ := w.fates(d.conditionItems())
	for i, item := range d.conditionItems() {
		if fates[i].stays && w.index(conditionOf(item).Type) < 0 {
			describe(&out, item)
		}
	}
	return out.String()
}

// fieldsBut are the fields of a mapping but for the named ones, in a form to compare.
func fieldsBut(mapping *yaml.Node, names ...string) string {
	var out strings.Builder
	if mapping.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		if !slices.ContainsFunc(names, func(name string) bool { return isKey(key, name) }) {
			describe(&out, key)
			describe(&out, mapping.Content[i+1])
		}
	}
	return out.String()
}

func describe(out *strings.Builder, node *yaml.Node) {
	fmt.Fprintf(out, "(%d %s %q", node.Kind, node.ShortTag(), node.Value)
	for _, child := range node.Content {
		describe(out, child)
	}
	out.WriteString(")")
}
