package function

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function/glob"
)

// SearchReplace finds fields and, if asked to, sets their values or line comments.
//
// The functionConfig is a ConfigMap. Its data say what to look for, all of it: by-value, by-value-regex (of the whole value),
// by-path (a.b[0].c, with * for one field and ** for any) and by-file-path (with *, ?, [class] and **); and what to do:
// put-value and put-comment, in which ${1} is a group of by-value-regex. A plain by-path with put-value and no other search
// makes the field where it is missing.
func SearchReplace(_ context.Context, list *ResourceList) error {
	s, err := newSearch(list)
	if err != nil {
		return err
	}
	for _, item := range list.Items {
		if s.file != nil && !glob.Match(s.file, strings.Split(item.Path, "/"), glob.Segment) {
			continue
		}
		s.item = item
		if s.creates() {
			if setString(item.Object.YNode(), s.putValue, s.path...) {
				s.report(strings.Join(s.path, "."), s.putValue)
			}
			continue
		}
		s.visit(item.Object.YNode(), nil)
	}
	list.report(Info, "%d fields matched", s.count)
	return nil
}

type search struct {
	list  *ResourceList
	item  *Item
	count int

	value                *string
	regex                *regexp.Regexp
	path, file           []string
	putValue, putComment string
	puts, comments       bool
}

func newSearch(list *ResourceList) (*search, error) {
	if list.Config == nil || !isConfigMap(list.Config) {
		return nil, wrongConfig(list.Config, "a ConfigMap with by-value, by-value-regex, by-path or by-file-path in its data")
	}
	settings, err := data(list.Config)
	if err != nil {
		return nil, err
	}
	s := &search{list: list}
	for _, setting := range settings {
		if err := s.set(setting.key, setting.value); err != nil {
			return nil, err
		}
	}
	switch {
	case s.value != nil && s.regex != nil:
		return nil, errors.New("the functionConfig has both by-value and by-value-regex: remove one of them")
	case s.value == nil && s.regex == nil && s.path == nil:
		return nil, errors.New("the functionConfig looks for nothing: set by-value, by-value-regex or by-path")
	}
	return s, nil
}

func (s *search) set(key, value string) error {
	var err error
	switch key {
	case "by-value":
		s.value = &value
	case "by-value-regex":
		s.regex, err = regexp.Compile("^(?:" + value + ")$")
	case "by-path":
		s.path = splitFieldPath(value)
	case "by-file-path":
		s.file = strings.Split(value, "/")
	case "put-value":
		s.putValue, s.puts = value, true
	case "put-comment":
		s.putComment, s.comments = value, true
	default:
		err = errors.New("there is no such setting")
	}
	if err != nil {
		return fmt.Errorf("the functionConfig's field data.%s: %w", key, err)
	}
	return nil
}

// splitFieldPath makes a, b, [0], c of a.b[0].c.
func splitFieldPath(path string) []string {
	var segments []string
	for _, part := range strings.Split(path, ".") {
		name, indexes, found := strings.Cut(part, "[")
		if name != "" {
			segments = append(segments, name)
		}
		if !found {
			continue
		}
		for _, index := range strings.Split(indexes, "[") {
			segments = append(segments, "["+index)
		}
	}
	return segments
}

// creates says that the path is that of one field, to be set whether it is there or not.
func (s *search) creates() bool {
	return s.puts && s.value == nil && s.regex == nil && !slices.ContainsFunc(s.path, func(segment string) bool {
		return strings.ContainsAny(segment, "*[")
	})
}

func (s *search) visit(node *yaml.Node, path []string) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			s.visit(node.Content[i+1], append(path, node.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, element := range node.Content {
			s.visit(element, append(path, "["+strconv.Itoa(i)+"]"))
		}
	case yaml.ScalarNode:
		s.visitScalar(node, path)
	}
}

func (s *search) visitScalar(node *yaml.Node, path []string) {
	if s.path != nil && !glob.Match(s.path, path, sameField) {
		return
	}
	expand := func(pattern string) string { return pattern }
	switch {
	case s.value != nil && node.Value != *s.value:
		return
	case s.regex != nil:
		match := s.regex.FindStringSubmatch(node.Value)
		if match == nil {
			return
		}
		expand = func(pattern string) string { return expandGroups(pattern, match) }
	}
	field := strings.ReplaceAll(strings.Join(path, "."), ".[", "[")
	if s.comments {
		node.LineComment = "# " + strings.ReplaceAll(expand(s.putComment), "\n", " ")
	}
	if s.puts {
		put := expand(s.putValue)
		if node.Tag != yaml.NodeTagString {
			// A number stays a number.
			node.Tag = ""
		}
		node.Value = put
	}
	s.report(field, node.Value)
}

func sameField(pattern, field string) bool {
	return pattern == field || (pattern == "*" && !strings.HasPrefix(field, "[")) ||
		(pattern == "[*]" && strings.HasPrefix(field, "["))
}

var groupReference = regexp.MustCompile(`\$\{(\d+)\}`)

// expandGroups leaves references to setters, such as ${name}, alone.
func expandGroups(pattern string, match []string) string {
	return groupReference.ReplaceAllStringFunc(pattern, func(reference string) string {
		number, err := strconv.Atoi(reference[2 : len(reference)-1])
		if err != nil || number >= len(match) {
			return reference
		}
		return match[number]
	})
}

func (s *search) report(field, value string) {
	s.count++
	verb := "matched a field with the value %q"
	if s.puts || s.comments {
		verb = "set a field, its value is %q"
	}
	s.list.reportItem(s.item, Info, field, verb, value)
}
