package function

import (
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/fieldspec"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// fieldSpecs reads a list of kustomize field specs from a functionConfig, nil when there is none.
func fieldSpecs(config *yaml.Node, field string) ([]types.FieldSpec, error) {
	node := child(config, field)
	if node == nil || node.ShortTag() == yaml.NodeTagNull {
		return nil, nil
	}
	var specs []types.FieldSpec
	if err := node.Decode(&specs); err != nil {
		return nil, fmt.Errorf("the functionConfig's field %s must be a list of field specs (group, version, kind, path, create): %w",
			field, err)
	}
	for i, spec := range specs {
		if strings.Trim(spec.Path, "/") == "" {
			return nil, fmt.Errorf("the functionConfig's field %s[%d].path is empty: set it, for example to spec/name", field, i)
		}
	}
	return specs, nil
}

// fieldOf writes the path of a field spec as results write fields.
func fieldOf(spec types.FieldSpec) string {
	return strings.ReplaceAll(strings.Trim(spec.Path, "/"), "/", ".")
}

// setInFields sets entries in the mappings that the field specs lead to.
func setInFields(list *ResourceList, item *Item, specs []types.FieldSpec, entries []entry) error {
	for _, spec := range specs {
		changed := 0
		err := item.Object.PipeE(fieldspec.Filter{
			FieldSpec: spec,
			SetValue: func(node *yaml.RNode) error {
				for _, entry := range entries {
					if setString(node.YNode(), entry.value, entry.key) {
						changed++
					}
				}
				return nil
			},
			CreateKind: yaml.MappingNode,
			CreateTag:  yaml.NodeTagMap,
		})
		if err != nil {
			return err
		}
		if changed > 0 {
			list.reportItem(item, Info, fieldOf(spec), "set %d values", changed)
		}
	}
	return nil
}
