package kptfile

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

const (
	// conditionRendered is the condition that kpt sets beside its renderStatus.
	conditionRendered = "Rendered"
	renderStatus      = "renderStatus"
)

// staleRenderStatus is kpt's account of the render that the condition Rendered spoke of, nil when there is none or the wish
// is not about that condition. It is found in block style only, as kpt writes it.
func (w wish) staleRenderStatus(d *document) (key *yaml.Node) {
	if w.index(conditionRendered) < 0 && !slices.Contains(w.drop, conditionRendered) {
		return nil
	}
	if d.status == nil || isFlow(d.root) || isFlow(d.status) {
		return nil
	}
	if key, _ = field(d.status, renderStatus); key == nil || !d.beginsLine(key) {
		return nil
	}
	return key
}

// dropRenderStatus takes it out, line by line.
func (e *editor) dropRenderStatus() {
	key := e.wish.staleRenderStatus(e.document)
	if key == nil {
		return
	}
	next := e.statusSpan.end
	for i := 0; i+1 < len(e.status.Content); i += 2 {
		if sibling := e.status.Content[i]; sibling.Line > key.Line {
			next = min(next, e.lineOf(sibling))
		}
	}
	lines := e.blockSpan(e.lineOf(key), next, key.Column)
	e.replace(lines.start, lines.end, "")
}
