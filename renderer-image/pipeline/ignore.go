package pipeline

import (
	"strings"

	"github.com/kiln-dev/kiln/renderer-image/function/glob"
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
			rule.segments = append([]string{glob.Any}, rule.segments...)
		}
		rules = append(rules, rule)
	}
	return rules
}

// match says whether the last rule that matches the path ignores it.
func (r ignoreRules) match(segments []string, folder bool) bool {
	for i := len(r) - 1; i >= 0; i-- {
		if (folder || !r[i].folder) && glob.Match(r[i].segments, segments, glob.Segment) {
			return !r[i].negated
		}
	}
	return false
}
