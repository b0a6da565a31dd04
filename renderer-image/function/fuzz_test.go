package function_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// configMapWith makes a ConfigMap of any texts.
func configMapWith(data map[string]string) *yaml.RNode {
	config := yaml.MustParse("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\n")
	if err := config.LoadMapIntoConfigMapData(data); err != nil {
		panic(err)
	}
	return config
}

// parseItem returns nil for what is not a resource.
func parseItem(text string) *function.Item {
	var node yaml.Node
	if yaml.Unmarshal([]byte(text), &node) != nil || node.Kind != yaml.DocumentNode || node.Content[0].Kind != yaml.MappingNode ||
		function.CheckAliases(&node) != nil {
		return nil
	}
	return &function.Item{Object: yaml.NewRNode(node.Content[0]), Path: "file.yaml"}
}

// Whatever a search looks for and puts: it does not crash, and what it leaves can be read again.
func FuzzSearchReplace(f *testing.F) {
	f.Add("spec.**.a[*].b", "(.*)", "**/*.yaml", "x-${1}", "kpt-set: ${a}", "spec: {c: {a: [{b: d}]}}")
	f.Add("a.b", "", "{a,file}.yaml", "1", "", "a: {b: [c]}")
	f.Add("*[", "[", "[", "${", "#", "{a: [[b], *c]}")
	f.Add("a", "a|", "\\", "", "\n", "a: &a b\nc: *a")
	f.Fuzz(func(t *testing.T, path, regex, file, put, comment, resource string) {
		item := parseItem(resource)
		if item == nil {
			return
		}
		data := map[string]string{"by-path": path, "by-value-regex": regex, "by-file-path": file, "put-value": put, "put-comment": comment}
		for key, value := range data {
			if value == "" {
				delete(data, key)
			}
		}
		list := &function.ResourceList{Config: configMapWith(data), Items: []*function.Item{item}, Stderr: io.Discard}
		if function.SearchReplace(context.Background(), list) != nil {
			return
		}
		text, err := item.Object.String()
		if err != nil {
			t.Fatalf("cannot be written: %v", err)
		}
		if _, err := yaml.Parse(text); err != nil {
			t.Fatalf("cannot be read again: %v\n%s", err, text)
		}
	})
}

// Setters that were found in values give the same values when they are applied.
func FuzzSettersAreTheReverseOfEachOther(f *testing.F) {
	f.Add("nginx:1.27", "nginx", "1.27")
	f.Add("aaaa", "aa", "a")
	f.Add("${a}-b", "b", "${a}")
	f.Add("", "", "x")
	f.Add("}{$", "$", "{")
	f.Fuzz(func(t *testing.T, value, first, second string) {
		item := parseItem(fmt.Sprintf("apiVersion: v1\nkind: Thing\nvalue: %q\n", value))
		if item == nil || strings.ContainsAny(value, "\n\r") {
			return
		}
		before := item.Object.Field("value").Value.YNode().Value
		setters := map[string]string{"first": first, "second": second}
		for _, apply := range []function.Func{function.CreateSetters, function.ApplySetters} {
			list := &function.ResourceList{Config: configMapWith(setters), Items: []*function.Item{item}, Stderr: io.Discard}
			if apply(context.Background(), list) != nil {
				return
			}
		}
		if after := item.Object.Field("value").Value.YNode().Value; after != before {
			t.Fatalf("%q became %q", before, after)
		}
	})
}

// A comment may say anything; applying setters twice changes nothing more than applying them once.
func FuzzApplySettersIsIdempotent(f *testing.F) {
	f.Add("reg/nginx:1", "${registry}/nginx:${tag}", "2")
	f.Add("a", "${tag}${tag}", "b")
	f.Add("a-b-c", "${x}-${y}-${tag}", "-")
	f.Fuzz(func(t *testing.T, value, pattern, tag string) {
		if strings.ContainsAny(value+pattern, "\n\r") {
			return
		}
		item := parseItem(fmt.Sprintf("apiVersion: v1\nkind: Thing\nvalue: %q # kpt-set: %s\n", value, pattern))
		if item == nil {
			return
		}
		var last string
		for i := range 3 {
			list := &function.ResourceList{
				Config: configMapWith(map[string]string{"tag": tag}), Items: []*function.Item{item}, Stderr: io.Discard,
			}
			if function.ApplySetters(context.Background(), list) != nil {
				return
			}
			now := item.Object.Field("value").Value.YNode().Value
			if i == 2 && now != last {
				t.Fatalf("%q became %q", last, now)
			}
			last = now
		}
	})
}
