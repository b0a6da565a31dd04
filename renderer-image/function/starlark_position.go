package function

import (
	"fmt"
	"strconv"

	"go.starlark.net/starlark"
	"sigs.k8s.io/kustomize/kyaml/kio/kioutil"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Programs find a resource's file and place in annotations, in an old and a new spelling of each. Only these programs need them,
// so only they get them.
const (
	idAnnotation       = kioutil.IdAnnotation
	legacyIDAnnotation = kioutil.LegacyIdAnnotation //nolint:staticcheck // programs still write it
)

type position struct {
	path, index, id string
	// legacyPath and legacyIndex are the old spellings. A program may have changed either.
	legacyPath, legacyIndex string
}

func positionOf(item *Item, number int) position {
	index := strconv.Itoa(item.Index)
	return position{
		path: item.Path, legacyPath: item.Path,
		index: index, legacyIndex: index,
		id: strconv.Itoa(number + 1),
	}
}

// annotate adds the annotations to a resource that a program is about to see.
func (p position) annotate(resource *starlark.Dict) {
	metadata := ensureDict(resource, "metadata")
	if metadata == nil {
		return
	}
	annotations := ensureDict(metadata, "annotations")
	if annotations == nil {
		return
	}
	for _, annotation := range [][2]string{
		{kioutil.PathAnnotation, p.path},
		{kioutil.LegacyPathAnnotation, p.path}, //nolint:staticcheck // programs still read it
		{kioutil.IndexAnnotation, p.index},
		{kioutil.LegacyIndexAnnotation, p.index}, //nolint:staticcheck // programs still read it
		{idAnnotation, p.id},
		{legacyIDAnnotation, p.id},
	} {
		_ = annotations.SetKey(starlark.String(annotation[0]), starlark.String(annotation[1]))
	}
}

func ensureDict(parent *starlark.Dict, key string) *starlark.Dict {
	value, found, _ := parent.Get(starlark.String(key))
	if !found || value == starlark.None {
		dict := starlark.NewDict(8)
		_ = parent.SetKey(starlark.String(key), dict)
		return dict
	}
	dict, _ := value.(*starlark.Dict)
	return dict
}

// takePosition removes the annotations again and returns what they say now.
func takePosition(resource *starlark.Dict) (position, error) {
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
	for _, annotation := range []struct {
		name string
		into *string
	}{
		{kioutil.PathAnnotation, &p.path},
		{kioutil.LegacyPathAnnotation, &p.legacyPath}, //nolint:staticcheck // programs still write it
		{kioutil.IndexAnnotation, &p.index},
		{kioutil.LegacyIndexAnnotation, &p.legacyIndex}, //nolint:staticcheck // programs still write it
		{legacyIDAnnotation, &p.id},
		{idAnnotation, &p.id},
	} {
		value, found, err := annotations.Delete(starlark.String(annotation.name))
		if err != nil {
			return p, fmt.Errorf("remove the annotation %s: %w", annotation.name, err)
		}
		if !found {
			continue
		}
		switch value := value.(type) {
		case starlark.String:
			*annotation.into = string(value)
		case starlark.Int:
			*annotation.into = value.String()
		default:
			return p, fmt.Errorf("the annotation %s must be a string", annotation.name)
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

// dropEmpty removes the mappings that only held the position's annotations and were not in the resource before.
func dropEmpty(before *yaml.Node, resource *starlark.Dict) {
	metadata, _, _ := resource.Get(starlark.String("metadata"))
	dict, ok := metadata.(*starlark.Dict)
	if !ok {
		return
	}
	value, _, _ := dict.Get(starlark.String("annotations"))
	annotations, ok := value.(*starlark.Dict)
	if ok && annotations.Len() == 0 && find(before, "metadata", "annotations") == nil {
		_, _, _ = dict.Delete(starlark.String("annotations"))
	}
	if dict.Len() == 0 && child(before, "metadata") == nil {
		_, _, _ = resource.Delete(starlark.String("metadata"))
	}
}
