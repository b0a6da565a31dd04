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

// EnsureNameSubstring puts a string before or after the names that do not contain it yet. Fields that refer to a renamed resource
// follow, and so do depends-on annotations. Namespaces, CustomResourceDefinitions, APIServices, Kptfiles and the package
// context keep their names.
//
// The functionConfig is a ConfigMap with either data.prepend or data.append, or an EnsureNameSubstring with the fields
// substring, editMode (prepend or append) and, optionally, additionalNameFields: kustomize field specs of more fields that hold
// names. fieldSpecs is an older name for those.
func EnsureNameSubstring(_ context.Context, list *ResourceList) error {
	config, err := readNameSubstring(list.Config)
	if err != nil {
		return err
	}
	r := newRenamer(list)
	for i, item := range list.Items {
		m := metaOf(item.Object)
		if keepsName(m) {
			continue
		}
		if m.name != "" {
			if err := r.rename(i, config.ensure(m.name)); err != nil {
				return fmt.Errorf("%s: %w", item.Path, err)
			}
		}
		for _, spec := range config.additional {
			if err := config.ensureField(&r.copies[i].RNode, spec); err != nil {
				return fmt.Errorf("%s: the functionConfig's field additionalNameFields: %w", item.Path, err)
			}
		}
	}
	return r.finish()
}

type nameSubstring struct {
	substring  string
	appends    bool
	additional []types.FieldSpec
}

func readNameSubstring(config *yaml.RNode) (*nameSubstring, error) {
	const wanted = "a ConfigMap with data.prepend or data.append, or an EnsureNameSubstring of " + configAPIVersion
	switch {
	case config == nil:
		return nil, wrongConfig(config, wanted)
	case isConfigMap(config):
		return nameSubstringOfData(config)
	case isOwnKind(config, "EnsureNameSubstring"):
		return nameSubstringOfKind(config)
	}
	return nil, wrongConfig(config, wanted)
}

func nameSubstringOfData(config *yaml.RNode) (*nameSubstring, error) {
	settings, err := data(config)
	if err != nil {
		return nil, err
	}
	if len(settings) != 1 {
		return nil, fmt.Errorf("the functionConfig's field data has %d entries: set one, prepend or append", len(settings))
	}
	c := &nameSubstring{substring: settings[0].value}
	switch settings[0].key {
	case "prepend":
	case "append":
		c.appends = true
	default:
		return nil, fmt.Errorf("the functionConfig's field data.%s: there is no such setting: use prepend or append", settings[0].key)
	}
	if c.substring == "" {
		return nil, fmt.Errorf("the functionConfig's field data.%s is empty: set it to what all names must contain", settings[0].key)
	}
	return c, nil
}

func nameSubstringOfKind(config *yaml.RNode) (*nameSubstring, error) {
	root := config.YNode()
	c := &nameSubstring{substring: stringAt(root, "substring")}
	if c.substring == "" {
		return nil, errors.New("the functionConfig's field substring is empty: set it to what all names must contain")
	}
	switch mode := stringAt(root, "editMode"); mode {
	case "", "prepend":
	case "append":
		c.appends = true
	default:
		return nil, fmt.Errorf("the functionConfig's field editMode is %q: use prepend or append", mode)
	}
	if child(root, "fieldSpecs") != nil && child(root, "additionalNameFields") != nil {
		return nil, errors.New("the functionConfig has both fieldSpecs and additionalNameFields: move all to additionalNameFields")
	}
	var err error
	if c.additional, err = fieldSpecs(root, "fieldSpecs"); err != nil || c.additional != nil {
		return c, err
	}
	c.additional, err = fieldSpecs(root, "additionalNameFields")
	return c, err
}

func (c *nameSubstring) ensure(name string) string {
	switch {
	case strings.Contains(name, c.substring):
		return name
	case c.appends:
		return name + c.substring
	}
	return c.substring + name
}

func (c *nameSubstring) ensureField(object *yaml.RNode, spec types.FieldSpec) error {
	return object.PipeE(fieldspec.Filter{
		FieldSpec: spec,
		SetValue: func(node *yaml.RNode) error {
			if field := node.YNode(); field.Kind == yaml.ScalarNode {
				field.Value, field.Tag = c.ensure(field.Value), yaml.NodeTagString
			}
			return nil
		},
		CreateKind: yaml.ScalarNode,
		CreateTag:  yaml.NodeTagString,
	})
}
