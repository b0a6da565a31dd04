package pipeline

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestIgnoreRules(t *testing.T) {
	for name, test := range map[string]struct {
		rules, file string
		folder      bool
		ignored     bool
	}{
		"a name matches at any depth":                {"a.yaml", "b/c/a.yaml", false, true},
		"a pattern with a slash counts from the top": {"b/a.yaml", "c/b/a.yaml", false, false},
		"a leading slash anchors":                    {"/a.yaml", "b/a.yaml", false, false},
		"a star stays in its segment":                {"b/*.yaml", "b/c/a.yaml", false, false},
		"two stars cross segments":                   {"b/**/a.yaml", "b/c/d/a.yaml", false, true},
		"two stars match no segment too":             {"b/**/a.yaml", "b/a.yaml", false, true},
		"two stars at the end":                       {"b/**", "b/c/d", false, true},
		"a trailing slash is for folders only":       {"a/", "a", false, false},
		"a trailing slash matches a folder":          {"a/", "b/a", true, true},
		"a later rule takes back":                    {"*.yaml\n!a.yaml", "a.yaml", false, false},
		"the last rule counts":                       {"!a.yaml\n*.yaml", "a.yaml", false, true},
		"a comment is no rule":                       {"# a.yaml\n\n", "# a.yaml", false, false},
		"a slash alone is no rule":                   {"/\n!/\n!", "a", false, false},
		"a bad pattern matches nothing":              {"[", "[", false, false},
		"a line end of Windows":                      {"a.yaml\r\n", "a.yaml", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseIgnoreRules(test.rules).match(strings.Split(test.file, "/"), test.folder)
			NewWithT(t).Expect(got).To(Equal(test.ignored))
		})
	}
}
