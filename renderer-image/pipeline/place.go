package pipeline

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/kio/kioutil"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

const maxPathLength = 1024

// place turns what a function left of input into the package's resources: it keeps those that the function did not see,
// drops the deleted ones, and gives every resource a file and a place in it.
func (r *renderer) place(p *pkg, f *functionRef, scope, input []*resource, items []*function.Item) ([]*resource, error) {
	at := fmt.Sprintf("%s: %s: %s", p.file(kptfileName), f.field, f.id())
	output, err := r.collect(p, at, input, items)
	if err != nil {
		return nil, err
	}
	placed := merge(scope, input, output)
	if err := checkPlaces(at, placed); err != nil {
		return nil, err
	}
	if has(scope, p.file(kptfileName)) && !has(placed, p.file(kptfileName)) {
		return nil, failf(InvalidOutput, "%s deletes or moves its package's Kptfile: exclude it by kind", at)
	}
	return placed, nil
}

func has(resources []*resource, file string) bool {
	return slices.ContainsFunc(resources, func(r *resource) bool { return r.Path == file })
}

// collect pairs the items with the resources they were and makes new ones for the rest, paths from the root again.
func (r *renderer) collect(p *pkg, at string, input []*resource, items []*function.Item) ([]*resource, error) {
	known := make(map[*function.Item]*resource, len(input))
	for _, resource := range input {
		known[&resource.Item] = resource
	}
	output := make([]*resource, 0, len(items))
	for _, item := range items {
		if item == nil || item.Object == nil {
			return nil, failf(InvalidOutput, "%s leaves an empty resource", at)
		}
		if lacks := problem(item.Path, item.Object.YNode()); lacks != "" {
			return nil, failf(InvalidOutput, "%s leaves a resource without %s in %q", at, lacks, item.Path)
		}
		place := known[item]
		if place == nil {
			place = &resource{Item: *item}
		}
		delete(known, item)
		file, err := r.filePath(p, at, &place.Item)
		if err != nil {
			return nil, err
		}
		place.Path = file
		output = append(output, place)
	}
	return output, nil
}

// filePath is the path from the root where the item goes.
func (r *renderer) filePath(p *pkg, at string, item *function.Item) (string, error) {
	name := item.Path
	if name == "" {
		root := item.Object.YNode()
		metadata := child(root, "metadata")
		name = kioutil.CreatePathAnnotationValue("", yaml.ResourceMeta{
			TypeMeta: yaml.TypeMeta{Kind: text(root, "kind")},
			ObjectMeta: yaml.ObjectMeta{NameMeta: yaml.NameMeta{
				Name: text(metadata, "name"), Namespace: text(metadata, "namespace"),
			}},
		})
	}
	// A leading slash means the package, not the machine.
	clean := path.Clean(strings.TrimLeft(name, "/"))
	file := p.file(clean)
	switch {
	case leadsOut(clean) || leadsOut(path.Clean(strings.TrimPrefix(name, item.Package+"/"))):
		return "", failf(InvalidOutput, "%s writes to %q, outside of its package: give the resource a path inside", at, name)
	case !isResourceFile(clean):
		return "", failf(InvalidOutput, "%s writes to %q: the file must end in .yaml, .yml or .json", at, name)
	case len(file) > maxPathLength || checkPath(file) != nil:
		return "", failf(InvalidOutput, "%s writes to %.100q: use a shorter path of plain characters", at, name)
	}
	if r.original[file] == nil && r.ownerOf(file).ignores(file) {
		return "", failf(InvalidOutput, "%s writes to %q, which %s excludes: use another path", at, name, ignoreName)
	}
	return file, nil
}

func leadsOut(clean string) bool { return clean == ".." || strings.HasPrefix(clean, "../") }

// merge puts output in the place of input within scope.
func merge(scope, input, output []*resource) []*resource {
	if len(scope) == len(input) {
		return output
	}
	given := make(map[*resource]bool, len(input))
	for _, resource := range input {
		given[resource] = true
	}
	left := make(map[*resource]bool, len(output))
	for _, resource := range output {
		left[resource] = true
	}
	merged := make([]*resource, 0, len(scope)-len(input)+len(output))
	for _, resource := range scope {
		if !given[resource] || left[resource] {
			merged = append(merged, resource)
		}
	}
	for _, resource := range output {
		if !given[resource] {
			merged = append(merged, resource)
		}
	}
	return merged
}

// checkPlaces refuses two resources at one place and gives new resources the place behind all others of their file.
func checkPlaces(at string, resources []*resource) error {
	type place struct {
		file  string
		index int
	}
	taken := make(map[place]bool, len(resources))
	last := make(map[string]int, len(resources))
	for _, resource := range resources {
		if resource.Index < 0 {
			continue
		}
		here := place{resource.Path, resource.Index}
		if taken[here] {
			return failf(InvalidOutput, "%s writes two resources to %q, index %d: give one of them another path or index",
				at, resource.Path, resource.Index)
		}
		taken[here] = true
		last[resource.Path] = max(last[resource.Path], resource.Index+1)
	}
	for _, resource := range resources {
		if resource.Index < 0 {
			resource.Index = last[resource.Path]
			last[resource.Path]++
		}
	}
	return nil
}

// backup is the state of resources before a function that may fail halfway.
type backup struct {
	resources []*resource
	items     []function.Item
}

func backUp(resources []*resource) *backup {
	b := &backup{resources: resources, items: make([]function.Item, len(resources))}
	for i, resource := range resources {
		b.items[i] = resource.Item
		b.items[i].Object = resource.Object.Copy()
	}
	return b
}

func (b *backup) restore() {
	if b == nil {
		return
	}
	for i, resource := range b.resources {
		resource.Item = b.items[i]
	}
}

func copies(resources []*resource) []*resource {
	copied := make([]*resource, len(resources))
	for i, original := range resources {
		copied[i] = &resource{Item: original.Item}
		copied[i].Object = original.Object.Copy()
	}
	return copied
}
