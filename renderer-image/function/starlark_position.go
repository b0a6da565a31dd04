package function

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"sigs.k8s.io/kustomize/kyaml/kio/kioutil"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Programs find a resource's file and place in annotations, in an old and a new spelling of each; the file is relative to the
// package that has the resource, which need not be the running one. Only these programs need them,
// so only they get them.
type position struct {
	path, index, id string
	// legacyPath and legacyIndex are the old spellings. A program may have changed either.
	legacyPath, legacyIndex string
}

func positionOf(item *Item, number int) position {
	path, index := item.Path, strconv.Itoa(item.Index)
	if item.Package != "" {
		path = strings.TrimPrefix(path, item.Package+"/")
	}
	return position{
		path: path, legacyPath: path,
		index: index, legacyIndex: index,
		id: strconv.Itoa(number + 1),
	}
}

// positionAnnotations are all names of the annotations.
var positionAnnotations = []string{
	kioutil.PathAnnotation, kioutil.LegacyPathAnnotation, //nolint:staticcheck // programs still use the old names
	kioutil.IndexAnnotation, kioutil.LegacyIndexAnnotation, //nolint:staticcheck // programs still use the old names
	kioutil.IdAnnotation, kioutil.LegacyIdAnnotation, //nolint:staticcheck // programs still use the old names
}

// annotate returns root with the annotations, sharing everything else with it.
func (p position) annotate(root *yaml.Node) *yaml.Node {
	if root.Kind != yaml.MappingNode {
		return root
	}
	annotated := shallowCopy(root)
	annotations := annotated
	for _, key := range []string{"metadata", "annotations"} {
		for i := 0; i+1 < len(annotations.Content); i += 2 {
			if annotations.Content[i].Value == key {
				annotations.Content[i+1] = shallowCopy(annotations.Content[i+1])
			}
		}
		if annotations = ensureMapping(annotations, key); annotations == nil {
			return root
		}
	}
	for i, text := range []string{p.path, p.legacyPath, p.index, p.legacyIndex, p.id, p.id} {
		setString(annotations, text, positionAnnotations[i])
	}
	return annotated
}

func shallowCopy(node *yaml.Node) *yaml.Node {
	copied := *node
	copied.Content = slices.Clone(node.Content)
	return &copied
}

// stripPosition removes the annotations again, and the mappings that only held them. before is the resource as it was, nil
// for a new one.
func stripPosition(root, before *yaml.Node) {
	annotations := find(root, "metadata", "annotations")
	if annotations == nil || annotations.Kind != yaml.MappingNode {
		return
	}
	for _, name := range positionAnnotations {
		remove(annotations, name)
	}
	metadata := child(root, "metadata")
	if len(annotations.Content) == 0 && find(before, "metadata", "annotations") == nil {
		remove(metadata, "annotations")
	}
	if len(metadata.Content) == 0 && child(before, "metadata") == nil {
		remove(root, "metadata")
	}
}

// remove takes key out of the mapping.
func remove(node *yaml.Node, key string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			node.Content = slices.Delete(node.Content, i, i+2)
			return
		}
	}
}

// readPosition returns what the annotations of a resource say after the program.
func readPosition(resource *starlark.Dict) (position, error) {
	var p position
	metadata, _, _ := resource.Get(starlark.String("metadata"))
	dict, ok := metadata.(*starlark.Dict)
	if !ok {
		return p, nil
	}
	value, _, _ := dict.Get(starlark.String("annotations"))
	annotations, ok := value.(*starlark.Dict)
	if !ok {
		return p, nil
	}
	for i, into := range []*string{&p.path, &p.legacyPath, &p.index, &p.legacyIndex, &p.id, new(string)} {
		name := positionAnnotations[i]
		value, found, _ := annotations.Get(starlark.String(name))
		if !found {
			continue
		}
		switch value := value.(type) {
		case starlark.String:
			*into = string(value)
		case starlark.Int:
			*into = value.String()
		default:
			return p, fmt.Errorf("the annotation %s must be a string", name)
		}
	}
	return p, nil
}

// apply moves the item to where the annotations say. The spelling that the program changed counts; when it changed both, the
// new one.
func (p position) apply(item *Item, known *starlarkItem) {
	before := position{}
	if known != nil {
		before = known.position
	}
	path := pick(before.path, p.path, p.legacyPath)
	index := pick(before.index, p.index, p.legacyIndex)
	item.Path = path
	if item.Package != "" {
		item.Path = item.Package + "/" + path
	}
	if number, err := strconv.Atoi(index); err == nil && number >= 0 {
		item.Index = number
	} else {
		item.Index = -1
	}
}

func pick(before, current, legacy string) string {
	switch {
	case current != "" && current != before:
		return current
	case legacy != "" && legacy != before:
		return legacy
	}
	return before
}
