package schema

import (
	"maps"
	"slices"
)

// Kinds returns all kinds that the set knows.
func (s *Set) Kinds() []Kind {
	return slices.Collect(maps.Keys(s.kinds))
}
