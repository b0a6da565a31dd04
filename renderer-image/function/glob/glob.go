// Package glob matches paths segment by segment.
package glob

import "path"

// Any stands in a pattern for any number of segments, also none.
const Any = "**"

// Match says whether the pattern's segments match all of the path's, where same compares one segment of each. Of several Any
// only the last needs to be tried again, so that the time grows with the product of the lengths at most.
func Match(pattern, segments []string, same func(pattern, segment string) bool) bool {
	p, s := 0, 0
	afterAny, retry := -1, 0
	for s < len(segments) {
		switch {
		case p < len(pattern) && pattern[p] == Any:
			p++
			afterAny, retry = p, s
		case p < len(pattern) && same(pattern[p], segments[s]):
			p++
			s++
		case afterAny >= 0:
			retry++
			p, s = afterAny, retry
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == Any {
		p++
	}
	return p == len(pattern)
}

// Segment compares one segment as file names are: *, ? and [classes] are special, and a bad pattern matches nothing.
func Segment(pattern, segment string) bool {
	matched, err := path.Match(pattern, segment)
	return matched && err == nil
}
