package function_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

func TestSearchReplace(t *testing.T) {
	const in = `apiVersion: v1
kind: Thing
metadata:
  name: web-a # kept
spec:
  ports:
  - port: 80
    name: "80"
  - port: 81
  deep: {er: {port: 80}}
  plain: four
  hex: 0x10
  dotted:
    example.com/key: a
  words:
  - a
  flow: [a, b]
`
	const rest = "  plain: four\n  hex: 0x10\n  dotted:\n    example.com/key: a\n  words:\n  - a\n  flow: [a, b]\n"
	for name, test := range map[string]struct{ data, out, fails string }{
		"a value keeps its type": {
			data: `{by-value: "80", put-value: "90"}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\nspec:\n  ports:\n  - port: 90\n    name: \"90\"\n" +
				"  - port: 81\n  deep: {er: {port: 90}}\n" + rest,
		},
		"a path with an index": {
			data: `{by-path: "spec.ports[1].port", by-value-regex: ".*", put-value: "1"}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\nspec:\n  ports:\n  - port: 80\n    name: \"80\"\n" +
				"  - port: 1\n  deep: {er: {port: 80}}\n" + rest,
		},
		"a path with any fields and a comment with a group": {
			data: `{by-path: "spec.**.port", by-value-regex: "8(1)", put-comment: "kpt-set: 8${1}-${x}"}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\nspec:\n  ports:\n  - port: 80\n    name: \"80\"\n" +
				"  - port: 81 # kpt-set: 81-${x}\n  deep: {er: {port: 80}}\n" + rest,
		},
		"a path that is not there is made": {
			data: `{by-path: metadata.namespace, put-value: new}`,
			out: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: web-a # kept\n  namespace: new\nspec:\n  ports:\n  - port: 80\n    name: \"80\"\n" +
				"  - port: 81\n  deep: {er: {port: 80}}\n" + rest,
		},
		"another file":               {data: `{by-value: "80", by-file-path: "b/**", put-value: "1"}`, out: in},
		"this file":                  {data: `{by-value: "80", by-file-path: "**/f*.yaml"}`, out: in},
		"a file in either folder":    {data: `{by-value: "80", by-file-path: "{a,b}/*.yaml", put-value: "1"}`, out: in},
		"a file with a class":        {data: `{by-value-regex: "web-(.)", by-file-path: "[!a]ile.yam?", put-value: "x-${1}"}`, out: strings.Replace(in, "web-a", "x-a", 1)},
		"one field on the way":       {data: `{by-path: "spec.*.port", by-value: "80", put-value: "1"}`, out: strings.Replace(in, "- port: 80", "- port: 1", 1)},
		"any index":                  {data: `{by-path: "spec.ports[*].port", put-value: "1"}`, out: strings.NewReplacer("- port: 80", "- port: 1", "- port: 81", "- port: 1").Replace(in)},
		"any index of any field":     {data: `{by-path: "spec.*[0].port", put-value: "1"}`, out: strings.Replace(in, "- port: 80", "- port: 1", 1)},
		"an index that is not there": {data: `{by-path: "spec.ports[2].port", put-value: "1"}`, out: in},
		"a string that becomes a number": {
			data: `{by-path: "**.plain", put-value: "4"}`, out: strings.Replace(in, "plain: four", "plain: 4", 1),
		},
		"a string in metadata that stays one": {
			data: `{by-value: "web-a", put-value: "4"}`, out: strings.Replace(in, "web-a", `"4"`, 1),
		},
		"a value that becomes empty":     {data: `{by-value: four, put-value: ""}`, out: strings.Replace(in, "four", `""`, 1)},
		"a path that is made, as number": {data: `{by-path: spec.replicas, put-value: "4"}`, out: in + "  replicas: 4\n"},
		"a key with dots": {
			data: `{by-path: spec.dotted.example.com/key, put-value: b}`, out: strings.Replace(in, "com/key: a", "com/key: b", 1),
		},
		"a path to a mapping changes nothing": {data: `{by-path: spec.deep, put-value: b}`, out: in},
		"a comment on a list":                 {data: `{by-path: "**.words", put-comment: "kpt-set: ${words}"}`, out: strings.Replace(in, "words:", "words: # kpt-set: ${words}", 1)},
		"a comment on a list in brackets":     {data: `{by-path: "**.flow", put-comment: "kpt-set: ${words}"}`, out: strings.Replace(in, "[a, b]", "[a, b] # kpt-set: ${words}", 1)},
		"the same value again":                {data: `{by-path: spec.hex, put-value: "0x10"}`, out: in},
		"a group that is not there":           {data: `{by-value-regex: "(a)", put-comment: "${2}"}`, fails: "has no group ${2}: it has 1"},
		"a bad file pattern":                  {data: `{by-value: a, by-file-path: "[a"}`, fails: "not a valid pattern"},
		"a file pattern that multiplies":      {data: `{by-value: a, by-file-path: "{a,a}{a,a}{a,a}{a,a}{a,a}{a,a}{a,a}{a,a}{a,a}"}`, fails: "more than 16 alternatives"},
		"an empty path":                       {data: `{by-path: "", put-value: a}`, fails: "data.by-path: it is empty"},
		"part of a value":                     {data: `{by-value-regex: "8", put-value: "1"}`, out: in},
		"nothing to look for":                 {data: `{put-value: a}`, fails: "looks for nothing"},
		"a misspelt setting":                  {data: `{by-values: a}`, fails: "data.by-values: there is no such setting"},
		"a bad regular expression":            {data: `{by-value-regex: "("}`, fails: "by-value-regex"},
		"a value and its expression":          {data: `{by-value-regex: a, by-value: a}`, fails: "remove one"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, _, err := run(t, function.SearchReplace, configMapOf(test.data), in)
			if test.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(test.out))
		})
	}
}

func TestSearchReplaceReportsWhereAndWhat(t *testing.T) {
	g := NewWithT(t)
	_, list, err := run(t, function.SearchReplace, configMapOf(`{by-value: web, put-value: shop}`), deployment)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Results).To(Equal([]function.Result{
		{
			Severity: function.Info, Message: `set the value to "shop"`,
			ResourceRef: &function.ResourceRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"},
			Field:       &function.Field{Path: "metadata.name", CurrentValue: "web", ProposedValue: "shop"},
			File:        &function.File{Path: "file.yaml"},
		},
		{Severity: function.Info, Message: "1 fields matched"},
	}))
}
