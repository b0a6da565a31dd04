package glob_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function/glob"
)

func TestMatch(t *testing.T) {
	for name, test := range map[string]struct {
		pattern, path string
		matches       bool
	}{
		"the same path":                     {"a/b", "a/b", true},
		"a longer path":                     {"a/b", "a/b/c", false},
		"a longer pattern":                  {"a/b/c", "a/b", false},
		"a star for one segment":            {"a/*/c", "a/b/c", true},
		"a star for two segments":           {"a/*", "a/b/c", false},
		"two stars for none":                {"a/**/c", "a/c", true},
		"two stars for many":                {"a/**/c", "a/x/c/y/c", true},
		"two stars twice":                   {"**/b/**/d", "a/b/b/c/d", true},
		"two stars that find no end":        {"**/b/**/d", "a/b/c", false},
		"two stars alone":                   {"**", "a/b", true},
		"a bad pattern":                     {"[", "[", false},
		"many stars stay quick on no match": {strings.Repeat("**/a/", 500) + "b", strings.Repeat("a/", 1000) + "c", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := glob.Match(strings.Split(test.pattern, "/"), strings.Split(test.path, "/"), glob.Segment)
			NewWithT(t).Expect(got).To(Equal(test.matches))
		})
	}
}
