package function

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/replacement"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/kustomize/kyaml/utils"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// ApplyReplacements copies values from one field to others, with kustomize's own implementation. A string stays a string
// where it is copied to.
//
// The functionConfig is an ApplyReplacements with the field replacements, as in kustomize.
func ApplyReplacements(_ context.Context, list *ResourceList) error {
	if list.Config == nil || !isOwnKind(list.Config, "ApplyReplacements") {
		return wrongConfig(list.Config, "an ApplyReplacements of "+configAPIVersion)
	}
	replacements, err := replacementsOf(list.Config)
	if err != nil {
		return err
	}
	nodes := make([]*yaml.RNode, len(list.Items))
	before := make([]*yaml.Node, len(list.Items))
	for i, item := range list.Items {
		nodes[i] = item.Object
		before[i] = yaml.CopyYNode(item.Object.YNode())
	}
	for i := range replacements {
		// One at a time, since each may copy what the one before it set.
		quoting := sourceQuoting(nodes, &replacements[i])
		filter := replacement.Filter{Replacements: replacements[i : i+1]}
		if _, err := filter.Filter(nodes); err != nil {
			return fmt.Errorf("replacements[%d]: %w", i, err)
		}
		quoting.restore(nodes, &replacements[i])
	}
	for i, item := range list.Items {
		eachChange(before[i], item.Object.YNode(), "", func(field, old, value string) {
			list.reportChange(item, field, old, value, setValue, value)
		})
	}
	return nil
}

func replacementsOf(config *yaml.RNode) ([]types.Replacement, error) {
	var read struct {
		Replacements []types.Replacement `yaml:"replacements"`
	}
	if err := config.YNode().Decode(&read); err != nil {
		return nil, fmt.Errorf("read the functionConfig's field replacements: %w", err)
	}
	if len(read.Replacements) == 0 {
		return nil, errors.New("the functionConfig's field replacements is empty: list at least one replacement")
	}
	for i, r := range read.Replacements {
		for j, target := range r.Targets {
			if target == nil {
				return nil, fmt.Errorf("the functionConfig's field replacements[%d].targets[%d] is empty", i, j)
			}
		}
	}
	return read.Replacements, nil
}

// quoting is how the source of a replacement is written; the filter copies the bare value only, so that "18" would turn
// into a number.
type quoting struct {
	tag   string
	style yaml.Style
	value string
}

func sourceQuoting(nodes []*yaml.RNode, r *types.Replacement) *quoting {
	if r.Source == nil {
		return nil
	}
	path := r.Source.FieldPath
	if path == "" {
		path = types.DefaultReplacementFieldPath
	}
	for _, node := range nodes {
		if !idOf(node).IsSelectedBy(r.Source.ResId) {
			continue
		}
		field, err := node.Pipe(yaml.Lookup(utils.SmarterPathSplitter(path, ".")...))
		if err != nil || field == nil || field.YNode().Kind != yaml.ScalarNode || field.YNode().ShortTag() != yaml.NodeTagString {
			return nil
		}
		source := field.YNode()
		return &quoting{tag: source.Tag, style: source.Style, value: source.Value}
	}
	return nil
}

// restore gives the fields that now hold the source's whole value its quoting.
func (q *quoting) restore(nodes []*yaml.RNode, r *types.Replacement) {
	if q == nil {
		return
	}
	for _, target := range r.Targets {
		if target.Select == nil {
			continue
		}
		for _, node := range nodes {
			if !idOf(node).IsSelectedBy(target.Select.ResId) {
				continue
			}
			for _, path := range target.FieldPaths {
				field, err := node.Pipe(yaml.Lookup(utils.SmarterPathSplitter(path, ".")...))
				if err != nil || field == nil {
					continue
				}
				if n := field.YNode(); n.Kind == yaml.ScalarNode && n.Value == q.value && n.ShortTag() != yaml.NodeTagString {
					n.Tag, n.Style = q.tag, q.style
				}
			}
		}
	}
}

func idOf(node *yaml.RNode) resid.ResId {
	m := metaOf(node)
	group, version := resid.ParseGroupVersion(m.apiVersion)
	return resid.NewResIdWithNamespace(resid.Gvk{Group: group, Version: version, Kind: m.kind}, m.name, m.namespace)
}

// eachChange calls report for each scalar that is new or differs in after.
func eachChange(before, after *yaml.Node, path string, report func(field, old, value string)) {
	switch after.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(after.Content); i += 2 {
			key := after.Content[i].Value
			eachChange(child(before, key), after.Content[i+1], strings.TrimPrefix(path+"."+key, "."), report)
		}
	case yaml.SequenceNode:
		for i, element := range after.Content {
			var old *yaml.Node
			if before != nil && before.Kind == yaml.SequenceNode && i < len(before.Content) {
				old = before.Content[i]
			}
			eachChange(old, element, path+"["+strconv.Itoa(i)+"]", report)
		}
	case yaml.ScalarNode:
		old := ""
		if before != nil && before.Kind == yaml.ScalarNode {
			old = before.Value
		}
		if before == nil || before.Kind != yaml.ScalarNode || old != after.Value {
			report(path, old, after.Value)
		}
	}
}
