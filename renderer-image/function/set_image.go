package function

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/fieldspec"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// SetImage changes the name, the tag or the digest of an image wherever containers use it.
//
// The functionConfig is a ConfigMap with data.name and any of data.newName, data.newTag and data.digest, or a SetImage with
// those fields under image and, optionally, additionalImageFields: kustomize field specs of more places that name images.
func SetImage(_ context.Context, list *ResourceList) error {
	image, additional, err := imageOf(list.Config)
	if err != nil {
		return err
	}
	setter := &imageSetter{list: list, image: image}
	for _, item := range list.Items {
		setter.item = item
		if metaOf(item.Object).kind != "CustomResourceDefinition" {
			setter.visit(item.Object.YNode(), "")
		}
		for _, spec := range additional {
			err := item.Object.PipeE(fieldspec.Filter{FieldSpec: spec, SetValue: func(node *yaml.RNode) error {
				setter.set(node.YNode(), fieldOf(spec))
				return nil
			}})
			if err != nil {
				return fmt.Errorf("%s: %w", item.Path, err)
			}
		}
	}
	if setter.count == 0 {
		list.report(Warning, "no container uses another version of the image %q", image.Name)
	}
	return nil
}

type imageSetter struct {
	list  *ResourceList
	item  *Item
	image types.Image
	count int
}

// visit looks for lists of containers at any depth, so that it finds pod templates in custom resources too.
func (s *imageSetter) visit(node *yaml.Node, path string) {
	for i, content := range node.Content {
		switch node.Kind {
		case yaml.SequenceNode:
			s.visit(content, fmt.Sprintf("%s[%d]", path, i))
		case yaml.MappingNode:
			if i%2 == 0 {
				continue
			}
			key := node.Content[i-1].Value
			field := strings.TrimPrefix(path+"."+key, ".")
			s.visit(content, field)
			if key != "containers" && key != "initContainers" && key != "ephemeralContainers" {
				continue
			}
			for j, container := range elements(node, key) {
				s.set(child(container, "image"), fmt.Sprintf("%s[%d].image", field, j))
			}
		}
	}
}

func (s *imageSetter) set(node *yaml.Node, field string) {
	if node == nil || node.Kind != yaml.ScalarNode {
		return
	}
	name, suffix := splitImage(node.Value)
	if name != s.image.Name {
		return
	}
	if s.image.NewName != "" {
		name = s.image.NewName
	}
	switch {
	case s.image.NewTag != "":
		suffix = ":" + s.image.NewTag
	case s.image.Digest != "":
		suffix = "@" + s.image.Digest
	}
	if node.Value == name+suffix {
		return
	}
	old := node.Value
	node.Value = name + suffix
	s.count++
	s.list.reportChange(s.item, field, old, node.Value, "set the image to %q", node.Value)
}

// splitImage cuts an image before its tag or digest. A colon before a slash belongs to the registry's port.
func splitImage(image string) (name, suffix string) {
	end := len(image)
	if at := strings.IndexByte(image, '@'); at >= 0 {
		end = at
	}
	if colon := strings.LastIndexByte(image[:end], ':'); colon > strings.LastIndexByte(image[:end], '/') {
		end = colon
	}
	return image[:end], image[end:]
}

func imageOf(config *yaml.RNode) (image types.Image, additional []types.FieldSpec, err error) {
	const wanted = "a ConfigMap with data.name and data.newTag, or a SetImage of " + configAPIVersion
	var from *yaml.Node
	switch {
	case config == nil:
		return image, nil, wrongConfig(config, wanted)
	case isConfigMap(config):
		from = child(config.YNode(), "data")
	case isOwnKind(config, "SetImage"):
		from = child(config.YNode(), "image")
		if additional, err = fieldSpecs(config.YNode(), "additionalImageFields"); err != nil {
			return image, nil, err
		}
	default:
		return image, nil, wrongConfig(config, wanted)
	}
	image = types.Image{
		Name:    stringAt(from, "name"),
		NewName: stringAt(from, "newName"),
		NewTag:  stringAt(from, "newTag"),
		Digest:  stringAt(from, "digest"),
	}
	switch {
	case image.Name == "":
		return image, nil, errors.New("the functionConfig names no image: set name to the image without its tag")
	case image.NewName == "" && image.NewTag == "" && image.Digest == "":
		return image, nil, errors.New("the functionConfig changes nothing: set newName, newTag or digest")
	case image.NewTag != "" && image.Digest != "":
		return image, nil, errors.New("the functionConfig sets both newTag and digest: remove one of them")
	}
	return image, additional, nil
}
