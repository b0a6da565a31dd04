package kptfile

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const body = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web # the name\n"

var rendered = Condition{Type: "Rendered", Status: "True", Reason: "RenderSuccess", Message: "of sha256:abc"}

const renderedText = "- type: Rendered\n  status: \"True\"\n  reason: RenderSuccess\n  message: \"of sha256:abc\"\n"

const (
	renderedFlow = `{type: Rendered, status: "True", reason: RenderSuccess, message: "of sha256:abc"}`
	renderedJSON = `{"type": "Rendered", "status": "True", "reason": "RenderSuccess", "message": "of sha256:abc"}`
)

func indented(text, indent string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(indent + line)
	}
	return out.String()
}

func TestSetConditions(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		drop    []string
		want    string
	}{
		"a Kptfile without a status gets one at its end": {
			content: body,
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"a last line without a line break gets one": {
			content: strings.TrimSuffix(body, "\n"),
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"the status goes before the document's end marker": {
			content: "---\n" + body + "...\n",
			want:    "---\n" + body + "status:\n  conditions:\n" + indented(renderedText, "  ") + "...\n",
		},
		"CRLF stays CRLF": {
			content: strings.ReplaceAll(body, "\n", "\r\n"),
			want:    strings.ReplaceAll(body+"status:\n  conditions:\n"+indented(renderedText, "  "), "\n", "\r\n"),
		},
		"a condition of the type is replaced in its place, others and comments stay": {
			content: body + "status: # ours\n  conditions:\n    # first\n    - type: Reviewed # by hand\n      status: 'True'\n    - type: Rendered\n      status: \"False\"\n      extra: gone\n    # last\n    - {type: Tested, status: Unknown}\n  other:\n    x: 1\n",
			want:    body + "status: # ours\n  conditions:\n    # first\n    - type: Reviewed # by hand\n      status: 'True'\n" + indented(renderedText, "    ") + "    # last\n    - {type: Tested, status: Unknown}\n  other:\n    x: 1\n",
		},
		"kpt's account of an older render goes with what it explains": {
			content: body + "status:\n  conditions:\n    - type: Rendered\n      status: \"False\"\n      reason: RenderFailed\n  renderStatus:\n    mutationSteps:\n      - image: x\n        exitCode: 1\n    # of kpt\n    errorSummary: |-\n      x: exit code 1\n  # ours\n  other: 1\n",
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "    ") + "  # ours\n  other: 1\n",
		},
		"kpt's account goes in front of the conditions, too": {
			content: body + "status:\n  renderStatus: {mutationSteps: [{image: x}]}\n  conditions:\n    - type: Rendered\n",
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "    "),
		},
		"kpt's account without conditions": {
			content: body + "status:\n  renderStatus:\n    mutationSteps:\n    - image: x\n",
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"a status in the middle is edited there": {
			content: "status:\n  conditions:\n  - type: Reviewed\n    status: \"True\"\n\n# the rest\n" + body,
			want:    "status:\n  conditions:\n  - type: Reviewed\n    status: \"True\"\n" + indented(renderedText, "  ") + "\n# the rest\n" + body,
		},
		"items that stand as far out as their field are kept so": {
			content: body + "status:\n  conditions:\n  - type: Rendered\n    status: \"False\"\n",
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"a status in flow style is edited in flow style": {
			content: body + "status: {observed: 3, conditions: [{type: Reviewed, status: \"True\", by: me}]} # ours\n",
			want:    body + "status: {observed: 3, conditions: [{type: Reviewed, status: \"True\", by: me}, " + renderedFlow + "]} # ours\n",
		},
		"a status in flow style without conditions gets them": {
			content: body + "status: {observed: 3}\n",
			want:    body + "status: {observed: 3, conditions: [" + renderedFlow + "]}\n",
		},
		"conditions in flow style are replaced in their place": {
			content: body + "status:\n  conditions: [{type: Rendered, status: \"False\"}, {type: Reviewed, status: 'it''s, [so]'},]\n  other: 'x'\n",
			want:    body + "status:\n  conditions: [" + renderedFlow + ", {type: Reviewed, status: 'it''s, [so]'},]\n  other: 'x'\n",
		},
		"conditions to drop in flow style go with their commas": {
			content: body + "status:\n  conditions: [{type: A}, {type: B}, {type: Rendered}, {type: C}, {type: D}]\n",
			drop:    []string{"A", "B", "D"},
			want:    body + "status:\n  conditions: [" + renderedFlow + ", {type: C}]\n",
		},
		"a status without conditions gets them in front of its other fields": {
			content: body + "status: # ours\n  # of the renderer\n  note: |+\n    x\n\n",
			want:    body + "status: # ours\n  conditions:\n" + indented(renderedText, "  ") + "  # of the renderer\n  note: |+\n    x\n\n",
		},
		"conditions that are null are filled, a comment stays": {
			content: body + "status:\n  conditions: ~ # none yet\n  a: 1\n",
			want:    body + "status:\n  conditions: # none yet\n" + indented(renderedText, "  ") + "  a: 1\n",
		},
		"a status that is null is filled": {
			content: "status:\n# about the rest\n" + body,
			want:    "status:\n  conditions:\n" + indented(renderedText, "  ") + "# about the rest\n" + body,
		},
		"the indentation of the file is followed": {
			content: "metadata:\n    name: web\npipeline:\n    mutators:\n      - image: x\n",
			want:    "metadata:\n    name: web\npipeline:\n    mutators:\n      - image: x\nstatus:\n    conditions:\n" + indented(renderedText, "      "),
		},
		"JSON on one line stays JSON": {
			content: `{"apiVersion": "kpt.dev/v1", "kind": "Kptfile"}`,
			want:    `{"apiVersion": "kpt.dev/v1", "kind": "Kptfile", "status": {"conditions": [` + renderedJSON + `]}}`,
		},
		"JSON on many lines gets a line more": {
			content: "{\n  \"kind\": \"Kptfile\",\n  \"info\": {\"description\": \"a, }b\"}\n}\n",
			want:    "{\n  \"kind\": \"Kptfile\",\n  \"info\": {\"description\": \"a, }b\"},\n  \"status\": {\"conditions\": [" + renderedJSON + "]}\n}\n",
		},
		"a condition in JSON is replaced": {
			content: `{"status": {"conditions": [{"type": "Rendered", "status": "False"}, {"type": "Reviewed"}]}, "kind": "Kptfile"}`,
			want:    `{"status": {"conditions": [` + renderedJSON + `, {"type": "Reviewed"}]}, "kind": "Kptfile"}`,
		},
		"an item below its dash is replaced with it": {
			content: body + "status:\n  conditions:\n  -\n    type: Reviewed\n  -\n    type: Rendered\n    status: x\n",
			want:    body + "status:\n  conditions:\n  -\n    type: Reviewed\n" + indented(renderedText, "  "),
		},
		"keys in quotes are keys": {
			content: body + "\"status\":\n  'conditions': []\n",
			want:    body + "\"status\":\n  'conditions':\n" + indented(renderedText, "  "),
		},
		"a byte order mark stays": {
			content: "\ufeff" + body,
			want:    "\ufeff" + body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"an empty status is filled": {
			content: body + "status: {}\n",
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"an empty list of conditions is filled": {
			content: body + "status:\n  conditions: []\n",
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"a condition to drop goes": {
			content: body + "status:\n  conditions:\n  - type: Reviewed\n    status: \"True\"\n" + indented(renderedText, "  "),
			drop:    []string{"Reviewed"},
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"two conditions of one type become one": {
			content: body + "status:\n  conditions:\n" + indented(renderedText, "  ") + indented(renderedText, "  "),
			want:    body + "status:\n  conditions:\n" + indented(renderedText, "  "),
		},
		"a Kptfile that says it already stays as it is": {
			content: body + "status: {conditions: [{type: Rendered, status: \"True\", reason: RenderSuccess, message: 'of sha256:abc'}]}\n",
			want:    body + "status: {conditions: [{type: Rendered, status: \"True\", reason: RenderSuccess, message: 'of sha256:abc'}]}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := SetConditions(test.content, []Condition{rendered}, test.drop...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
			again, err := SetConditions(got, []Condition{rendered}, test.drop...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(got), "a second time changes nothing")
		})
	}
}

func TestSetConditionsKeepsAnyTextOfAMessage(t *testing.T) {
	for _, message := range []string{"two\nlines", `"quoted" \ and 'single'`, "# no comment", "tab\tend ", "\u0085\u2028\ufeff\x00\x7f", "…", "{a: b}", "- x", strings.Repeat("long ", 1000)} {
		g := NewWithT(t)
		got, err := SetConditions(body, []Condition{{Type: "Rendered", Status: "False", Reason: "no: plain word", Message: message}})
		g.Expect(err).NotTo(HaveOccurred(), "%q", message)
		conditions, err := Conditions(got)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions).To(Equal([]Condition{{Type: "Rendered", Status: "False", Reason: "no: plain word", Message: message}}))
	}
}

func TestKptsAccountStaysWhileItsConditionDoes(t *testing.T) {
	g := NewWithT(t)
	content := body + "status:\n  conditions:\n  - type: Rendered\n  renderStatus: {}\n"
	got, err := SetConditions(content, []Condition{{Type: "Reviewed", Status: "True"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(body + "status:\n  conditions:\n  - type: Rendered\n  - type: Reviewed\n    status: \"True\"\n  renderStatus: {}\n"))
	got, err = SetConditions(got, nil, "Rendered")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(body + "status:\n  conditions:\n  - type: Reviewed\n    status: \"True\"\n"))
}

func TestWhatIsNotUTF8InAMessageIsReplaced(t *testing.T) {
	g := NewWithT(t)
	set := []Condition{{Type: "Rendered", Status: "False", Message: "cut \xe2\x80"}}
	got, err := SetConditions(body, set)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Conditions(got)).To(Equal([]Condition{{Type: "Rendered", Status: "False", Message: "cut \ufffd"}}))
	g.Expect(SetConditions(got, set)).To(Equal(got))
}

func TestDroppingTheOnlyConditionLeavesAnEmptyList(t *testing.T) {
	g := NewWithT(t)
	content, err := SetConditions(body, []Condition{rendered})
	g.Expect(err).NotTo(HaveOccurred())
	got, err := SetConditions(content, nil, "Rendered")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(body + "status:\n  conditions: []\n"))
	g.Expect(Conditions(got)).To(BeEmpty())
}

func TestKptfilesThatAreNotEditedAreRefused(t *testing.T) {
	for name, content := range map[string]string{
		"an empty file":                 "",
		"no YAML":                       "a: [",
		"no mapping":                    "- a\n",
		"broken JSON":                   `{"apiVersion": "kpt.dev/v1"`,
		"a list in brackets":            `[{"apiVersion": "kpt.dev/v1"}]`,
		"a status that is text":         body + "status: fine\n",
		"conditions that are a mapping": body + "status:\n  conditions:\n    type: Rendered\n",
		"conditions twice":              body + "status:\n  conditions: []\n  conditions: []\n",
		"a type twice in one condition": body + "status:\n  conditions:\n  - type: A\n    type: B\n",
		"bytes that are not UTF-8":      "a: \xff\n",
		"two documents":                 body + "---\n" + body,
		"two statuses":                  body + "status: {}\nstatus: {}\n",
		"anchors in status":             body + "status: &a\n  conditions: []\n",
		"aliases in status":             "x: &a 1\nstatus:\n  y: *a\n",
		"foreign line breaks":           "a: 1\rstatus: 2\n",
		"a line separator":              "a: \"\u2028\"\n",
		"a status in brackets":          "? status\n: {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := SetConditions(content, []Condition{rendered})
			NewWithT(t).Expect(err).To(MatchError(ErrNotEditable))
		})
	}
}

func TestWithoutStatusIsTheSameWhateverTheConditions(t *testing.T) {
	g := NewWithT(t)
	plainText, ok := WithoutStatus(body)
	g.Expect(ok).To(BeTrue())
	g.Expect(plainText).To(Equal(body))
	with, err := SetConditions(body, []Condition{rendered})
	g.Expect(err).NotTo(HaveOccurred())
	again, ok := WithoutStatus(with)
	g.Expect(ok).To(BeTrue())
	g.Expect(again).To(Equal(plainText))
	_, ok = WithoutStatus("a: [")
	g.Expect(ok).To(BeFalse())
}

func TestConditionsThatContradictEachOtherAreRefused(t *testing.T) {
	g := NewWithT(t)
	_, err := SetConditions(body, []Condition{rendered, rendered})
	g.Expect(err).To(MatchError(ContainSubstring("given twice")))
	_, err = SetConditions(body, []Condition{rendered}, "Rendered")
	g.Expect(err).To(MatchError(ContainSubstring("given twice")))
}

func TestAliasesAreNotExpanded(t *testing.T) {
	g := NewWithT(t)
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += fmt.Sprintf("%[1]c: &%[1]c [*%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c, *%[2]c]\n", c, c-1)
	}
	got, err := SetConditions(bomb, []Condition{rendered})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(bomb + "status:\n  conditions:\n" + indented(renderedText, "  ")))
}
