package function

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function/glob"
)

// Limits of patterns of file paths: their alternatives multiply.
const (
	maxFilePattern      = 1024
	maxFileAlternatives = 16
)

// SearchReplace finds fields and, if asked to, sets their values or line comments.
//
// The functionConfig is a ConfigMap. Its data say what to look for, all of it: by-value, by-value-regex (of the whole value),
// by-path (a.b[0].c, with * for one field or index and ** for any fields) and by-file-path (with *, ?, [class], {either,or} and
// **); and what to do: put-value and put-comment, in which ${1} is a group of by-value-regex. A plain by-path with put-value
// and no other search makes the field where it is missing. A by-path to a list with put-comment comments the list.
//
// A value without quotes takes the type that the new one looks like, but what is in metadata stays a string.
func SearchReplace(_ context.Context, list *ResourceList) error {
	s, err := newSearch(list)
	if err != nil {
		return err
	}
	for _, item := range list.Items {
		if s.file != "" && !doublestar.MatchUnvalidated(s.file, item.Path) {
			continue
		}
		s.item = item
		before := s.count
		s.visit(item.Object.YNode(), nil)
		if s.count == before && s.creates() {
			s.create()
		}
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
	path                 []string
	file                 string
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
			return nil, fmt.Errorf("the functionConfig's field data.%s: %w", setting.key, err)
		}
	}
	switch {
	case s.value != nil && s.regex != nil:
		return nil, errors.New("the functionConfig has both by-value and by-value-regex: remove one of them")
	case s.value == nil && s.regex == nil && s.path == nil:
		return nil, errors.New("the functionConfig looks for nothing: set by-value, by-value-regex or by-path")
	}
	for field, pattern := range map[string]string{"put-value": s.putValue, "put-comment": s.putComment} {
		if err := s.checkGroups(pattern); err != nil {
			return nil, fmt.Errorf("the functionConfig's field data.%s: %w", field, err)
		}
	}
	return s, nil
}

func (s *search) set(key, value string) (err error) {
	switch key {
	case "by-value":
		s.value = &value
	case "by-value-regex":
		s.regex, err = regexp.Compile("^(?:" + value + ")$")
	case "by-path":
		if value == "" {
			return errors.New("it is empty: set it to a path such as spec.replicas, or remove it")
		}
		s.path = strings.Split(value, ".")
	case "by-file-path":
		s.file, err = value, checkFilePattern(value)
	case "put-value":
		s.putValue, s.puts = value, true
	case "put-comment":
		s.putComment, s.comments = value, true
	default:
		err = errors.New("there is no such setting: use by-value, by-value-regex, by-path, by-file-path, put-value or put-comment")
	}
	return err
}

func checkFilePattern(pattern string) error {
	switch {
	case len(pattern) > maxFilePattern:
		return fmt.Errorf("it is %d characters long: at most %d are allowed", len(pattern), maxFilePattern)
	case strings.Count(pattern, "{")+strings.Count(pattern, ",") > maxFileAlternatives:
		return fmt.Errorf("it has more than %d alternatives: write fewer", maxFileAlternatives)
	case !doublestar.ValidatePattern(pattern):
		return fmt.Errorf("%q is not a valid pattern: check its brackets and braces", pattern)
	}
	return nil
}

// checkGroups refuses references to groups that the expression does not have.
func (s *search) checkGroups(pattern string) error {
	if s.regex == nil {
		return nil
	}
	for _, reference := range groupReference.FindAllStringSubmatch(pattern, -1) {
		if number, err := strconv.Atoi(reference[1]); err != nil || number > s.regex.NumSubexp() {
			return fmt.Errorf("by-value-regex has no group %s: it has %d", reference[0], s.regex.NumSubexp())
		}
	}
	return nil
}

// creates says that the path is that of one field, to be set whether it is there or not.
func (s *search) creates() bool {
	return s.puts && s.value == nil && s.regex == nil && !slices.ContainsFunc(s.path, func(segment string) bool {
		return segment == "" || strings.ContainsAny(segment, "*[")
	})
}

func (s *search) create() {
	root := s.item.Object.YNode()
	if !setString(root, s.putValue, s.path...) {
		return
	}
	if s.path[0] != "metadata" && s.putValue != "" {
		find(root, s.path...).Tag = ""
	}
	s.report(strings.Join(s.path, "."), "", s.putValue)
}

// visit walks the tree. In path, the indexes of a list belong to the segment of its key, and a key with dots is several
// segments, as in by-path.
func (s *search) visit(node *yaml.Node, path []string) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			below := append(path[:len(path):len(path)], strings.Split(key.Value, ".")...)
			if value.Kind == yaml.SequenceNode {
				s.commentList(key, value, below)
			}
			s.visit(value, below)
		}
	case yaml.SequenceNode:
		for i, element := range node.Content {
			if len(path) == 0 {
				return
			}
			below := slices.Clone(path)
			below[len(below)-1] += "[" + strconv.Itoa(i) + "]"
			s.visit(element, below)
		}
	case yaml.ScalarNode:
		s.visitScalar(node, path)
	}
}

// commentList puts the comment on a list that the path leads to.
func (s *search) commentList(key, list *yaml.Node, path []string) {
	if !s.comments || s.path == nil || s.value != nil || s.regex != nil || !glob.Match(s.path, path, sameField) {
		return
	}
	commented := key
	if list.Style&yaml.FlowStyle != 0 {
		commented = list
	}
	commented.LineComment = lineComment(s.putComment)
	s.count++
	s.list.reportItem(s.item, Info, strings.Join(path, "."), "set the comment to %q", commented.LineComment)
}

func lineComment(text string) string {
	return "# " + strings.ReplaceAll(strings.TrimPrefix(text, "# "), "\n", " ")
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
	old := node.Value
	if s.comments {
		node.LineComment = lineComment(expand(s.putComment))
	}
	if s.puts {
		s.put(node, expand(s.putValue), path)
	}
	s.report(strings.Join(path, "."), old, node.Value)
}

func (s *search) put(node *yaml.Node, value string, path []string) {
	if node.Value == value {
		return
	}
	node.Value = value
	switch {
	case value == "":
		node.Tag, node.Style = yaml.NodeTagString, yaml.DoubleQuotedStyle
	case path[0] == "metadata":
		node.Tag = yaml.NodeTagString
	default:
		node.Tag = ""
	}
}

// sameField compares one segment of by-path with one of a field: a field's name or *, and indexes or [*].
func sameField(pattern, field string) bool {
	if pattern == field || pattern == "*" {
		return true
	}
	wanted, got := strings.Split(pattern, "["), strings.Split(field, "[")
	return slices.EqualFunc(wanted, got, func(wanted, got string) bool {
		return wanted == got || wanted == "*" || wanted == "*]"
	})
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

func (s *search) report(field, old, value string) {
	s.count++
	switch {
	case old != value:
		s.list.reportChange(s.item, field, old, value, setValue, value)
	case s.comments:
		s.list.reportItem(s.item, Info, field, "set the comment of a field with the value %q", value)
	default:
		s.list.reportItem(s.item, Info, field, "matched a field with the value %q", value)
	}
}
