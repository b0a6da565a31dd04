package pipeline

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// write returns all files as the resources now say. With prune, files that have no resource left are deleted.
func (r *renderer) write(prune bool) (map[string]string, error) {
	files := maps.Clone(r.files)
	now := make(map[string][]*resource, len(r.original))
	for _, resource := range r.resources {
		resource.changed = resource.source == nil || function.Fingerprint(resource.Object.Document()) != resource.print
		now[resource.Path] = append(now[resource.Path], resource)
	}
	if prune {
		for file, resources := range r.original {
			if len(resources) > 0 && len(now[file]) == 0 {
				delete(files, file)
			}
		}
	}
	for file, resources := range now {
		slices.SortStableFunc(resources, func(a, b *resource) int { return a.Index - b.Index })
		if slices.Equal(resources, r.original[file]) && !slices.ContainsFunc(resources, isChanged) {
			continue
		}
		content, err := compose(file, resources)
		if err != nil {
			return nil, failf(InvalidOutput, "%s: the resources cannot be written: %s", file, err)
		}
		files[file] = content
	}
	if err := r.checkSize(files); err != nil {
		return nil, err
	}
	return files, nil
}

func isChanged(r *resource) bool { return r.changed }

// compose writes the documents of a file. Those that did not change keep their text.
func compose(file string, resources []*resource) (string, error) {
	var out strings.Builder
	lineEnd := lineEndOf(resources)
	for i, resource := range resources {
		body, marker, err := resource.body(file, len(resources), lineEnd)
		if err != nil {
			return "", err
		}
		if resource.source != nil {
			out.WriteString(resource.source.before)
		}
		if i > 0 && marker == "" {
			marker = "---" + lineEnd
		}
		if i > 0 || resource.source == nil || resource.source.first || resource.source.before != "" {
			out.WriteString(marker)
		}
		out.WriteString(body)
		if i < len(resources)-1 && !strings.HasSuffix(body, "\n") {
			out.WriteString(lineEnd)
		}
		if resource.source != nil {
			out.WriteString(resource.source.after)
		}
	}
	return out.String(), nil
}

// lineEndOf is how lines end in the documents that were read, the first of them if they differ.
func lineEndOf(resources []*resource) string {
	for _, resource := range resources {
		if resource.source != nil {
			return resource.source.lineEnd()
		}
	}
	return "\n"
}

// body returns the text of a resource and the --- line that it had before.
func (r *resource) body(file string, documents int, lineEnd string) (body, marker string, err error) {
	if r.source != nil {
		body = r.source.text
		if line, rest, found := strings.Cut(body, "\n"); found && strings.TrimSpace(line) == "---" {
			marker, body = line+"\n", rest
		}
		if !r.changed {
			return body, marker, nil
		}
	}
	if strings.HasSuffix(file, ".json") && documents == 1 {
		body, err = encodeJSON(r.Object.YNode())
	} else {
		body, err = encodeYAML(r.Object, withLF(body))
	}
	if lineEnd != "\n" {
		body = strings.ReplaceAll(body, "\n", lineEnd)
	}
	return body, marker, err
}

// encodeYAML writes the tree, its lists indented as in the text that it had before.
func encodeYAML(object *yaml.RNode, before string) (string, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoderWithOptions(&text, &yaml.EncoderOptions{
		SeqIndent: yaml.SequenceIndentStyle(yaml.DeriveSeqIndentStyle(before)),
	})
	if err := encoder.Encode(object.Document()); err != nil {
		return "", fmt.Errorf("write YAML: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return "", fmt.Errorf("write YAML: %w", err)
	}
	return text.String(), nil
}
