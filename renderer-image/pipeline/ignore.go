package pipeline

import (
	"path"
	"strings"
)

// ignoreRules are the patterns of a .krmignore, which is written like a .gitignore: a pattern with a slash counts from the
// file's folder, one without matches at any depth, a trailing slash restricts it to folders, ** stands for any folders, and
// ! takes back. The libraries for this crash on some patterns, and the files come from strangers.
type ignoreRules []ignoreRule

type ignoreRule struct {
	segments []string
	folder   bool
	negated  bool
}

func parseIgnoreRules(text string) ignoreRules {
	var rules ignoreRules
	for line := range strings.Lines(text) {
		pattern := strings.TrimRight(line, " \t\r\n")
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		var rule ignoreRule
		pattern, rule.negated = strings.CutPrefix(pattern, "!")
		pattern, rule.folder = strings.CutSuffix(pattern, "/")
		anchored := strings.Contains(pattern, "/")
		if pattern = strings.Trim(pattern, "/"); pattern == "" {
			continue
		}
		rule.segments = strings.Split(pattern, "/")
		if !anchored {
			rule.segments = append([]string{"**"}, rule.segments...)
		}
		rules = append(rules, rule)
	}
	return rules
}

// match says whether the last rule that matches the path ignores it.
func (r ignoreRules) match(segments []string, folder bool) bool {
	for i := len(r) - 1; i >= 0; i-- {
		if (folder || !r[i].folder) && matchSegments(r[i].segments, segments) {
			return !r[i].negated
		}
	}
	return false
}

// matchSegments matches segment by segment. Of several ** only the last needs to be tried again, which keeps the time small.
func matchSegments(pattern, segments []string) bool {
	p, s := 0, 0
	afterStars, retry := -1, 0
	for s < len(segments) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			p++
			afterStars, retry = p, s
		case p < len(pattern) && matchSegment(pattern[p], segments[s]):
			p++
			s++
		case afterStars >= 0:
			retry++
			p, s = afterStars, retry
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

func matchSegment(pattern, segment string) bool {
	matched, err := path.Match(pattern, segment)
	return matched && err == nil
}
