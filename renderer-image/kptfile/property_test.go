package kptfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// heads, statuses and tails are put together to Kptfiles of many shapes; every one of them can be edited.
var (
	heads = []string{
		"", "---\n", "# a comment\n\n", "%YAML 1.1\n---\n", "\ufeff",
	}
	fronts = []string{
		"apiVersion: kpt.dev/v1\nkind: Kptfile\n",
		"metadata:\n  name: wéb # the näme\n  annotations: {a: b}\n",
		"pipeline:\n    mutators:\n      - image: x\n        configMap:\n            a: |+\n                b\n\n",
	}
	statuses = []string{
		"",
		"status:\n",
		"status: {}\n",
		"status: null # none\n",
		"status:\n  {}\n",
		"status: # ours\n  # theirs\n  other: |\n    # text\n",
		"status:\n  conditions:\n",
		"status:\n  conditions: [] # none\n  other: x\n",
		"status:\n  conditions: {}\n",
		"status:\n  conditions:\n  - type: Rendered\n    status: \"False\"\n    since: 2024-01-01\n  # between\n  - type: Reviewed\n    status: \"True\"\n    since: 2024-01-01\n",
		"status:\n    other: {a: [1]}\n    conditions:\n      -   type: Reviewed # by hand\n          message: >-\n            folded\n\n            text\n      - {type: Stale, status: \"False\"}\n\n    # last\n    more: 1\n",
		"status:\n  conditions:\n  -\n    type: Stale\n  - \n    type: Rendered\n",
		"status:\n  conditions:\n  - type: Stale\n  - type: Rendered\n  - type: Rendered\n",
		"status:\n  renderStatus:\n    mutationSteps:\n    - image: x\n      stderr: |\n        # text\n\n  # about conditions\n  conditions:\n    - type: Stale\n",
		"status:\n  conditions:\n  - type: Rendered\n\n  renderStatus: {a: [b,\n    c]}\n\n  # last\n  other: 1\n",
		"status:\n  renderStatus:\n",
		"status:\n  conditions: [{type: Stale}, {type: 'Rev, {iewed', x: [1, 2]}, # one\n    {type: Rendered}]\n",
		"status: {other: {a: \"}\"}, conditions: [{type: Stale}]}\n",
		"status: {conditions: null, other: 1}\n",
		"status: {conditions}\n",
		"status: {\n  conditions: [\n    {type: Reviewed},\n  ],\n}\n",
		"'status':\n  \"conditions\":\n  - type: Stale\n",
		"status:\n  conditions:\n  - not a mapping\n  - type: Reviewed\n  - null\n  - [a]\n",
	}
	tails = []string{"", "\n\n", "# the end\n", "info:\n  description: |\n    text\n", "# about info\ninfo: {}\n\n# the end\n", "...\n", "... # done\n# trailing\n"}
	roots = []string{
		"{}", "{ }\n", "{a: 1}\n", `{"a": 1, "status": {"conditions": [{"type": "Stale"}]}, "b": "}"}`,
		"{\n  \"status\": {\n    \"conditions\": [\n      {\n        \"type\": \"Reviewed\"\n      }\n    ]\n  },\n  \"a\": [\"]\"]\n}\n",
		"{status}", "{status: , a: 1}", "{a: 1, status: null,}", "{ # comment, {\n  a: 'it''s', \"b\\\"\": x # y ]\n}\n",
		"---\n{a: 1, status: {x: y}}\n...\n", "{a, status: {conditions: []}, }\n",
	}
)

func kptfiles() []string {
	all := slices.Clone(roots)
	for i, status := range statuses {
		for j, tail := range tails {
			for k, head := range heads {
				text := head + fronts[(i+j+k)%len(fronts)] + status + tail
				all = append(all, text, strings.TrimSuffix(text, "\n"), strings.ReplaceAll(text, "\n", "\r\n"))
			}
			if status != "" {
				all = append(all, status+tail)
			}
		}
	}
	return all
}

// violated names the first promise that an edit broke; empty if it kept them all.
func violated(before, after string, set []Condition, drop ...string) string {
	now, err := Conditions(after)
	if err != nil {
		return "it can be read: " + err.Error()
	}
	for _, c := range set {
		if !slices.Contains(now, c) {
			return "the condition is there: " + c.Type
		}
	}
	then, _ := Conditions(before)
	touched := func(c Condition) bool {
		return slices.Contains(drop, c.Type) || slices.ContainsFunc(set, func(s Condition) bool { return s.Type == c.Type })
	}
	for _, c := range now {
		if slices.Contains(drop, c.Type) {
			return "the dropped condition is gone: " + c.Type
		}
	}
	if !slices.Equal(slices.DeleteFunc(slices.Clone(now), touched), slices.DeleteFunc(slices.Clone(then), touched)) {
		return "other conditions stay"
	}
	restBefore, _ := WithoutStatus(before)
	restAfter, ok := WithoutStatus(after)
	if !ok || restBefore != restAfter {
		return "the rest stays byte for byte"
	}
	if again, err := SetConditions(after, set, drop...); err != nil || again != after {
		return "a second time changes nothing"
	}
	return ""
}

func TestKptfilesOfEveryShapeCanBeEdited(t *testing.T) {
	wishes := []struct {
		set  []Condition
		drop []string
	}{
		{[]Condition{rendered}, nil},
		{[]Condition{{Type: "RenderFinished", Status: "False"}, {Type: "Rendered", Status: "False", Reason: "No", Message: "two\nlines: # \"x\""}}, []string{"Stale"}},
		{nil, []string{"Rendered", "Stale", "Reviewed"}},
	}
	g := NewWithT(t)
	for _, content := range kptfiles() {
		for _, w := range wishes {
			got, err := SetConditions(content, w.set, w.drop...)
			g.Expect(err).NotTo(HaveOccurred(), "%q", content)
			g.Expect(violated(content, got, w.set, w.drop...)).To(BeEmpty(), "%q\n%s", content, got)
		}
	}
}

// TestKptfilesThatPeopleWroteCanBeEdited takes those of the shared corpus.
func TestKptfilesThatPeopleWroteCanBeEdited(t *testing.T) {
	corpus := os.Getenv("KILN_CORPUS")
	if corpus == "" {
		corpus = filepath.Join("..", "..", "..", "shared", "corpus")
	}
	if _, err := os.Stat(corpus); err != nil {
		t.Skipf("there is no corpus: set KILN_CORPUS: %v", err)
	}
	g := NewWithT(t)
	edited := 0
	err := filepath.WalkDir(corpus, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "Kptfile" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, ok := WithoutStatus(string(data)); !ok {
			return nil // Some are broken on purpose.
		}
		set := []Condition{rendered}
		got, err := SetConditions(string(data), set, "Unknown")
		g.Expect(err).NotTo(HaveOccurred(), path)
		g.Expect(violated(string(data), got, set)).To(BeEmpty(), path)
		edited++
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(edited).To(BeNumerically(">", 10))
}

func FuzzSetConditions(f *testing.F) {
	for _, status := range statuses {
		f.Add(fronts[0]+status+tails[4], "Rendered", "True", "RenderSuccess", "of sha256:abc", "Stale")
	}
	for _, root := range roots {
		f.Add(root, "Rendered", "False", "no word", "two\nlines", "")
	}
	f.Fuzz(func(t *testing.T, content, conditionType, status, reason, message, drop string) {
		set := []Condition{{validText(conditionType), validText(status), validText(reason), validText(message)}}
		got, err := SetConditions(content, set, drop)
		if err != nil {
			return
		}
		if broken := violated(content, got, set, drop); broken != "" {
			t.Fatalf("broken: %s\n%q\n%q", broken, content, got)
		}
	})
}

// FuzzWithoutStatus looks for texts where leaving out the status changes something else: two packages that differ must not
// have the same digest.
func FuzzWithoutStatus(f *testing.F) {
	for _, status := range statuses {
		f.Add(fronts[1] + status + tails[3])
		f.Add(fronts[2] + status + tails[1] + tails[3])
	}
	for _, root := range roots {
		f.Add(root)
	}
	f.Fuzz(func(t *testing.T, content string) {
		rest, ok := WithoutStatus(content)
		if !ok || !strings.HasSuffix(content, "\n") { // The line break that is added may be one of a text.
			return
		}
		before, err := parse(content)
		if err != nil {
			t.Fatal(err)
		}
		want := fieldsBut(before.root, "status")
		got := ""
		if after, err := decode(strings.TrimPrefix(rest, byteOrderMark)); err == nil {
			got = fieldsBut(after.Content[0], "status")
		}
		if got != want {
			t.Fatalf("%q became %q: %s became %s", content, rest, want, got)
		}
	})
}

func BenchmarkSetConditions(b *testing.B) {
	for name, content := range map[string]string{
		"usual":               fronts[0] + fronts[1] + statuses[9] + tails[3],
		"a MiB on one line":   "{status: {conditions: [" + strings.Repeat("{type: Ä},", 95_000) + "]}}",
		"a MiB of conditions": "status:\n  conditions:\n" + strings.Repeat("  - type: Ä\n", 80_000),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := SetConditions(content, []Condition{rendered}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
