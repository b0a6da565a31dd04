package pipeline_test

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// label gives every ConfigMap a label.
func label(_ context.Context, list *function.ResourceList) error {
	for _, item := range list.Items {
		if item.Object.GetKind() != "ConfigMap" {
			continue
		}
		if err := item.Object.PipeE(yaml.SetLabel("new", "label")); err != nil {
			return err
		}
	}
	return nil
}

func TestAChangedFileKeepsWhatTheFunctionLeavesAlone(t *testing.T) {
	const labels = "  labels:\n    new: 'label'\n"
	for name, test := range map[string]struct{ before, after string }{
		"comments everywhere": {
			"# head\n\n# of a\napiVersion: v1 # one\nkind: ConfigMap\nmetadata: # two\n  # three\n  name: a # four\ndata:\n  # five\n  a: b\n  # last\n",
			"# head\n\n# of a\napiVersion: v1 # one\nkind: ConfigMap\nmetadata: # two\n  # three\n  name: a # four\n" + labels + "data:\n  # five\n  a: b\n  # last\n",
		},
		"the order of fields": {
			"kind: ConfigMap\nmetadata:\n  name: a\ndata:\n  z: 1\n  a: 2\napiVersion: v1\n",
			"kind: ConfigMap\nmetadata:\n  name: a\n" + labels + "data:\n  z: 1\n  a: 2\napiVersion: v1\n",
		},
		"lists that are indented": {
			configMap + "list:\n  - a\n  - - b\n    - c\n",
			configMap + labels + "list:\n  - a\n  - - b\n    - c\n",
		},
		"lists that are not indented": {
			configMap + "list:\n- a\n- b: c\n  d: e\n",
			configMap + labels + "list:\n- a\n- b: c\n  d: e\n",
		},
		"quotes, anchors and block texts": {
			configMap + "data: &d\n  a: 'b'\n  c: \"d\"\n  e: |-\n    f\n     g\nmore: *d\n",
			configMap + labels + "data: &d\n  a: 'b'\n  c: \"d\"\n  e: |-\n    f\n     g\nmore: *d\n",
		},
		"nulls and numbers as they are written": {
			configMap + "a: null\nb: ~\nc:\nd: 0777\ne: 1e3\nf: 0x1F\n",
			configMap + labels + "a: null\nb: ~\nc:\nd: 0777\ne: 1e3\nf: 0x1F\n",
		},
		"the other documents": {
			"# only this\n---\napiVersion:   v1\nkind: Secret\nmetadata: {name: s}\n--- # mark\n" + configMap + "---\n# end\n",
			"# only this\n---\napiVersion:   v1\nkind: Secret\nmetadata: {name: s}\n---\n" + "# mark\n" + configMap + labels + "---\n# end\n",
		},
		"CRLF line ends": {
			strings.ReplaceAll("# head\n---\n# of a\n"+configMap+"data:\n  # five\n  a: b # six\n  c: |\n    d\n\n    e\n", "\n", "\r\n"),
			strings.ReplaceAll("# head\n---\n# of a\n"+configMap+labels+"data:\n  # five\n  a: b # six\n  c: |\n    d\n\n    e\n", "\n", "\r\n"),
		},
		"CRLF in the document that has it": {
			strings.ReplaceAll(configMap, "\n", "\r\n"),
			strings.ReplaceAll(configMap+labels, "\n", "\r\n"),
		},
		"LF where line ends are mixed": {
			strings.Replace(configMap, "\n", "\r\n", 1),
			configMap + labels,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files := map[string]string{"Kptfile": kptfileWith(""), "a.yaml": test.before}
			outcome := renderWith(t, files, label, pipeline.Limits{})
			g.Expect(outcome.Failure).To(BeNil())
			g.Expect(outcome.Files).To(HaveKeyWithValue("a.yaml", test.after))
			g.Expect(renderWith(t, outcome.Files, label, pipeline.Limits{}).Files).To(Equal(outcome.Files))
		})
	}
}

func TestWhatJoinsAFileWithCRLFGetsCRLF(t *testing.T) {
	g := NewWithT(t)
	windows := strings.ReplaceAll(configMap, "\n", "\r\n")
	outcome := renderWith(t, map[string]string{"Kptfile": kptfileWith(""), "a.yaml": windows},
		func(_ context.Context, list *function.ResourceList) error {
			list.Items = append(list.Items, &function.Item{Object: yaml.MustParse(configMap), Path: "a.yaml", Index: -1})
			return nil
		}, pipeline.Limits{})
	g.Expect(outcome.Failure).To(BeNil())
	g.Expect(outcome.Files).To(HaveKeyWithValue("a.yaml", windows+"---\r\n"+windows))
}
