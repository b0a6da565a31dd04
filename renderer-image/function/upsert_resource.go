package function

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// targetPathAnnotation on a resource to insert says which file of the package it goes to.
const targetPathAnnotation = "config.kubernetes.io/target-path"

// notWritten are annotations that tell tools about the functionConfig, not about the resource.
var notWritten = []string{
	targetPathAnnotation,
	"config.kubernetes.io/function", "config.k8s.io/function",
	"config.kubernetes.io/path", "config.kubernetes.io/index",
	"internal.config.kubernetes.io/path", "internal.config.kubernetes.io/index",
}

// UpsertResource inserts resources, or puts them in the place of those with the same group, kind, namespace and name. With the
// annotation config.kubernetes.io/target-path a resource only replaces one in that file, and else is inserted there.
//
// The functionConfig is the resource itself, or a List with the resources as items.
func UpsertResource(_ context.Context, list *ResourceList) error {
	resources, err := resourcesToUpsert(list.Config)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		upsert(list, resource)
	}
	return nil
}

func resourcesToUpsert(config *yaml.RNode) ([]*yaml.Node, error) {
	const wanted = "a file with the resource to insert, or with a List of several"
	if config == nil {
		return nil, wrongConfig(config, wanted)
	}
	root := withoutAliases(config.YNode())
	m := metaOf(config)
	if isConfigMap(config) && m.name == inlineConfigName {
		return nil, errors.New("the functionConfig is an inline configMap: set configPath to " + wanted)
	}
	resources, at := []*yaml.Node{root}, ""
	if m.kind == "List" {
		resources, at = elements(root, "items"), "items[%d]."
	}
	for i, resource := range resources {
		where := at
		if at != "" {
			where = fmt.Sprintf(at, i)
		}
		for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
			if stringAt(resource, path...) == "" {
				return nil, fmt.Errorf("the functionConfig's field %s%s is empty: set it", where, strings.Join(path, "."))
			}
		}
	}
	return resources, nil
}

func upsert(list *ResourceList, resource *yaml.Node) {
	target := stringAt(resource, "metadata", "annotations", targetPathAnnotation)
	resource = yaml.CopyYNode(resource)
	dropAnnotations(resource, notWritten)
	wanted := metaOf(yaml.NewRNode(resource))
	found := false
	for _, item := range list.Items {
		if !metaOf(item.Object).sameResource(wanted) || (target != "" && target != item.Path) {
			continue
		}
		found = true
		if sameValue(item.Object.YNode(), resource) {
			continue
		}
		// The pointer stays, so that the resource stays where it is in its file.
		*item.Object.YNode() = *yaml.CopyYNode(resource)
		list.reportItem(item, Info, "", "replaced the resource")
	}
	if found {
		return
	}
	item := &Item{Object: yaml.NewRNode(resource), Path: target, Index: -1}
	list.Items = append(list.Items, item)
	list.reportItem(item, Info, "", "inserted the resource")
}

// sameValue compares what two trees mean, not how they are written.
func sameValue(a, b *yaml.Node) bool {
	return reflect.DeepEqual(jsonValue(withoutAliases(a)), jsonValue(withoutAliases(b)))
}

// dropAnnotations removes annotations, and the mapping when it is then empty.
func dropAnnotations(resource *yaml.Node, names []string) {
	metadata := child(resource, "metadata")
	annotations := child(metadata, "annotations")
	if annotations == nil || annotations.Kind != yaml.MappingNode {
		return
	}
	before := len(annotations.Content)
	for _, name := range names {
		removeKey(annotations, name)
	}
	if len(annotations.Content) == 0 && before > 0 {
		removeKey(metadata, "annotations")
	}
}

func removeKey(node *yaml.Node, key string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			node.Content = slices.Delete(node.Content, i, i+2)
			return
		}
	}
}
