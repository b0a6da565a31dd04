package function

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const setterPrefix = "# kpt-set:"

var setterReference = regexp.MustCompile(`\$\{([^}]*)\}`)

// ApplySetters sets the fields whose line comment names a setter, for example
//
//	image: nginx:1.16 # kpt-set: nginx:${tag}
//
// The setters that a pattern uses but the functionConfig does not give keep the value they have in the field. A list is set
// as a whole, from a setter whose value is a YAML list.
//
// The functionConfig is a ConfigMap whose data are the setters, or an ApplySetters with the field setters.
func ApplySetters(_ context.Context, list *ResourceList) error {
	setters, err := settersOf(list.Config)
	if err != nil {
		return err
	}
	if len(setters) == 0 {
		return errors.New("the functionConfig gives no setters: set them in data, or in the field setters of an ApplySetters")
	}
	applier := &setterApplier{list: list, setters: map[string]string{}}
	for _, setter := range setters {
		applier.setters[setter.key] = setter.value
	}
	for _, item := range list.Items {
		applier.item = item
		if err := applier.visit(item.Object.YNode(), ""); err != nil {
			return err
		}
	}
	if applier.failed {
		return ErrFailed
	}
	if applier.count == 0 {
		list.report(Info, "no field uses the given setters")
	}
	return nil
}

func settersOf(config *yaml.RNode) ([]entry, error) {
	switch {
	case config == nil:
		return nil, wrongConfig(config, "a ConfigMap with the setters as data, or an ApplySetters of "+configAPIVersion)
	case isConfigMap(config):
		return data(config)
	case isOwnKind(config, "ApplySetters"):
		return stringMap(child(config.YNode(), "setters"), "setters")
	}
	return nil, wrongConfig(config, "a ConfigMap with the setters as data, or an ApplySetters of "+configAPIVersion)
}

type setterApplier struct {
	list    *ResourceList
	item    *Item
	setters map[string]string
	count   int
	failed  bool
}

// visit walks the tree, path being where node is.
func (a *setterApplier) visit(node *yaml.Node, path string) error {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			field := strings.TrimPrefix(path+"."+key.Value, ".")
			if value.Kind == yaml.SequenceNode {
				a.setList(key, value, field)
			}
			if err := a.visit(value, field); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		for i, value := range node.Content {
			if err := a.visit(value, path+"["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
	case yaml.ScalarNode:
		a.setScalar(node, path)
	}
	return nil
}

func (a *setterApplier) setScalar(node *yaml.Node, path string) {
	pattern := setterPattern(node.LineComment)
	if !a.uses(pattern) {
		return
	}
	value, err := a.resolve(pattern, node.Value)
	if err != nil {
		a.fail(path, err)
		return
	}
	a.done(path, node.Value, value)
	if node.Value == value {
		return
	}
	node.Value = value
	if value == "" {
		node.Style = yaml.DoubleQuotedStyle
	}
	// Without a tag the encoder writes the value as it stands, so that a setter can make a number or a boolean; quoted
	// fields stay strings.
	node.Tag = ""
}

func (a *setterApplier) setList(key, node *yaml.Node, path string) {
	comment := key.LineComment
	if node.Style&yaml.FlowStyle != 0 {
		comment = node.LineComment
	}
	pattern := setterPattern(comment)
	if !a.uses(pattern) {
		return
	}
	names := setterReference.FindStringSubmatch(pattern)
	if names == nil || names[0] != pattern {
		a.fail(path, fmt.Errorf("the setter pattern %q of a list must be one setter such as ${name}", pattern))
		return
	}
	value := a.setters[names[1]]
	content, err := parseList(value)
	if err != nil {
		a.fail(path, fmt.Errorf("setter %q: %w", names[1], err))
		return
	}
	a.done(path, "", value)
	if equalScalars(node.Content, content) {
		return
	}
	node.Content = content
	// An empty list can only be written in flow style, and there the comment belongs to the value.
	if len(content) == 0 {
		node.Style, node.LineComment, key.LineComment = yaml.FlowStyle, comment, ""
		return
	}
	node.Style, node.LineComment, key.LineComment = 0, "", comment
}

func parseList(value string) ([]*yaml.Node, error) {
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	parsed, err := yaml.Parse(value)
	if err != nil || parsed.YNode().Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("the value %q must be a YAML list", value)
	}
	return parsed.YNode().Content, nil
}

func equalScalars(a, b []*yaml.Node) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for i := range a {
		if a[i].Kind != yaml.ScalarNode || b[i].Kind != yaml.ScalarNode ||
			a[i].Value != b[i].Value || a[i].ShortTag() != b[i].ShortTag() {
			return false
		}
	}
	return true
}

func setterPattern(comment string) string {
	pattern, found := strings.CutPrefix(comment, setterPrefix)
	if !found {
		return ""
	}
	return strings.TrimSpace(pattern)
}

// uses says whether the pattern names any setter that is given.
func (a *setterApplier) uses(pattern string) bool {
	if pattern == "" {
		return false
	}
	for _, match := range setterReference.FindAllStringSubmatch(pattern, -1) {
		if _, given := a.setters[match[1]]; given {
			return true
		}
	}
	return false
}

// resolve fills the pattern with the given setters and, for the others, with what current has in their place.
func (a *setterApplier) resolve(pattern, current string) (string, error) {
	var inherited map[string]string
	var missing []string
	value := setterReference.ReplaceAllStringFunc(pattern, func(reference string) string {
		name := reference[2 : len(reference)-1]
		if value, given := a.setters[name]; given {
			return value
		}
		if inherited == nil {
			inherited = currentSetters(pattern, current)
		}
		if value, found := inherited[name]; found {
			return value
		}
		missing = append(missing, name)
		return ""
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("the setters %q of the pattern %q are not given: add them to the functionConfig", missing, pattern)
	}
	return value, nil
}

// currentSetters derives the setters of a pattern from a value made with it; nothing when the value does not fit.
func currentSetters(pattern, value string) map[string]string {
	var names []string
	var expression strings.Builder
	expression.WriteString("^")
	rest := 0
	for _, at := range setterReference.FindAllStringSubmatchIndex(pattern, -1) {
		expression.WriteString(regexp.QuoteMeta(pattern[rest:at[0]]))
		expression.WriteString("(.+)")
		names = append(names, pattern[at[2]:at[3]])
		rest = at[1]
	}
	expression.WriteString(regexp.QuoteMeta(pattern[rest:]) + "$")
	compiled, err := regexp.Compile(expression.String())
	if err != nil {
		return nil
	}
	values := compiled.FindStringSubmatch(value)
	if values == nil {
		return nil
	}
	setters := make(map[string]string, len(names))
	for i, name := range names {
		setters[name] = values[i+1]
	}
	return setters
}

func (a *setterApplier) fail(path string, err error) {
	a.failed = true
	a.list.reportItem(a.item, Error, path, "%s", err)
}

func (a *setterApplier) done(path, old, value string) {
	a.count++
	a.list.reportChange(a.item, path, old, value, "set field value to %q", value)
}
