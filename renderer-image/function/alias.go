package function

import (
	"errors"
	"fmt"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// maxExpanded bounds how many nodes a document has once its aliases are replaced by what they stand for. Every copy of such a
// tree replaces them, so without a bound a few lines of YAML could fill the memory.
const maxExpanded = 100_000

// CheckAliases refuses a document whose aliases refer to themselves or multiply beyond all measure. All others can be copied
// and walked safely.
func CheckAliases(document *yaml.Node) error {
	if !hasAlias(document) {
		return nil
	}
	counter := aliasCounter{sizes: map[*yaml.Node]int{}}
	size := counter.size(document)
	switch {
	case counter.cycle:
		return errors.New("a YAML anchor contains an alias to itself: write the value out")
	case size > maxExpanded:
		return fmt.Errorf("its YAML aliases stand for more than %d values: write fewer of them", maxExpanded)
	}
	return nil
}

type aliasCounter struct {
	sizes map[*yaml.Node]int
	cycle bool
}

// size returns the number of nodes below node, saturating at maxExpanded+1. A size of -1 marks nodes being counted.
func (c *aliasCounter) size(node *yaml.Node) int {
	if node.Kind == yaml.AliasNode {
		known, seen := c.sizes[node.Alias]
		if seen && known < 0 {
			c.cycle = true
			return 0
		}
		if seen {
			return known
		}
		return c.size(node.Alias)
	}
	if node.Anchor != "" {
		c.sizes[node] = -1
	}
	size := 1
	for _, content := range node.Content {
		size = min(size+c.size(content), maxExpanded+1)
	}
	if node.Anchor != "" {
		c.sizes[node] = size
	}
	return size
}
