package function

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// CreateSetters is the reverse of ApplySetters: it looks for the values of the given setters in fields and adds the comments
// that name the setters. A field that has another comment keeps it.
//
// The functionConfig is a ConfigMap whose data are the setters; a value that is a YAML list is looked for in lists.
func CreateSetters(_ context.Context, list *ResourceList) error {
	if list.Config == nil || !isConfigMap(list.Config) {
		return wrongConfig(list.Config, "a ConfigMap with the setters as data")
	}
	setters, err := data(list.Config)
	if err != nil {
		return err
	}
	creator := newSetterCreator(list, setters)
	for _, item := range list.Items {
		creator.item = item
		creator.visit(item.Object.YNode(), "")
	}
	if creator.count == 0 {
		list.report(Info, "no field has the value of a setter")
	}
	return nil
}

type setterCreator struct {
	list  *ResourceList
	item  *Item
	count int
	// scalars puts references in the place of values, longer values first.
	scalars *strings.Replacer
	// lists are the setters whose values are lists, values sorted.
	lists []listSetter
}

type listSetter struct {
	name   string
	values []string
}

func newSetterCreator(list *ResourceList, setters []entry) *setterCreator {
	c := &setterCreator{list: list}
	slices.SortStableFunc(setters, func(a, b entry) int {
		return len(b.value) - len(a.value)
	})
	var replacements []string
	for _, setter := range setters {
		if elements, err := parseList(setter.value); err == nil && len(elements) > 0 {
			if values, plain := sortedScalars(elements); plain {
				c.lists = append(c.lists, listSetter{setter.key, values})
			}
			continue
		}
		if setter.value != "" {
			replacements = append(replacements, setter.value, "${"+setter.key+"}")
		}
	}
	c.scalars = strings.NewReplacer(replacements...)
	return c
}

// sortedScalars returns the values of a list that holds nothing but scalars.
func sortedScalars(elements []*yaml.Node) (values []string, plain bool) {
	for _, element := range elements {
		if element.Kind != yaml.ScalarNode {
			return nil, false
		}
		values = append(values, element.Value)
	}
	slices.Sort(values)
	return values, true
}

func (c *setterCreator) visit(node *yaml.Node, path string) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			field := strings.TrimPrefix(path+"."+key.Value, ".")
			if value.Kind == yaml.SequenceNode {
				c.visitList(key, value, field)
			}
			c.visit(value, field)
		}
	case yaml.SequenceNode:
		for i, element := range node.Content {
			c.visit(element, path+"["+strconv.Itoa(i)+"]")
		}
	case yaml.ScalarNode:
		if strings.Contains(node.Value, "\n") {
			return
		}
		// A comment cannot keep spaces at the ends of a value.
		if pattern := c.scalars.Replace(node.Value); pattern != node.Value && pattern == strings.TrimSpace(pattern) {
			c.comment(node, pattern, path)
		}
	}
}

func (c *setterCreator) visitList(key, list *yaml.Node, path string) {
	values, plain := sortedScalars(list.Content)
	if !plain {
		return
	}
	for _, setter := range c.lists {
		if !slices.Equal(values, setter.values) {
			continue
		}
		commented := key
		if list.Style&yaml.FlowStyle != 0 {
			commented = list
		}
		c.comment(commented, "${"+setter.name+"}", path)
		return
	}
}

func (c *setterCreator) comment(node *yaml.Node, pattern, path string) {
	comment := setterPrefix + " " + pattern
	switch {
	case node.LineComment == comment:
		c.count++
		return
	case node.LineComment != "" && setterPattern(node.LineComment) == "":
		c.list.reportItem(c.item, Warning, path, "the field keeps its comment and is not made a setter")
		return
	}
	node.LineComment = comment
	c.count++
	c.list.reportItem(c.item, Info, path, "added the comment %q", comment)
}
