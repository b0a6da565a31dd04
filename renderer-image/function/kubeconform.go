package function

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function/schema"
)

// Kubeconform validates resources against the schemas of Kubernetes' own kinds and of the CustomResourceDefinitions in the
// package. It changes nothing. A kind without a schema is an error, but for local configuration, which no cluster sees.
//
// The functionConfig is a ConfigMap, all of whose data are optional: strict ("true" refuses fields that a schema does not
// name), ignore_missing_schemas ("true" passes kinds without a schema) and skip_kinds (Kind or group/version/Kind, separated by
// commas). Other places to take schemas from cannot be given: a render has no network.
func Kubeconform(ctx context.Context, list *ResourceList) error {
	config, err := readKubeconform(list.Config)
	if err != nil {
		return err
	}
	schemas, err := schema.New(config.strict)
	if err != nil {
		return err
	}
	failed := false
	for _, item := range list.Items {
		if m := metaOf(item.Object); m.kind != "CustomResourceDefinition" || m.apiVersion != "apiextensions.k8s.io/v1" {
			continue
		}
		if err := schemas.AddDefinition(fieldsOf(item)); err != nil {
			list.reportItem(item, Error, "", "its schema cannot be used: %s", err)
			failed = true
		}
	}
	for _, item := range list.Items {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		valid, err := config.validate(list, item, schemas)
		if err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
		failed = failed || !valid
	}
	if failed {
		return ErrFailed
	}
	return nil
}

type kubeconformConfig struct {
	strict, ignoreMissing bool
	skip                  map[string]bool
}

func readKubeconform(config *yaml.RNode) (*kubeconformConfig, error) {
	c := &kubeconformConfig{skip: map[string]bool{}}
	if config == nil {
		return c, nil
	}
	if !isConfigMap(config) {
		return nil, wrongConfig(config, "a ConfigMap with strict, ignore_missing_schemas and skip_kinds in its data")
	}
	settings, err := data(config)
	if err != nil {
		return nil, err
	}
	for _, setting := range settings {
		if err := c.set(setting.key, setting.value); err != nil {
			return nil, fmt.Errorf("the functionConfig's field data.%s: %w", setting.key, err)
		}
	}
	return c, nil
}

func (c *kubeconformConfig) set(key, value string) (err error) {
	switch key {
	case "strict":
		c.strict, err = parseBool(value)
	case "ignore_missing_schemas":
		c.ignoreMissing, err = parseBool(value)
	case "skip_kinds":
		for _, kind := range strings.Split(value, ",") {
			c.skip[strings.TrimSpace(kind)] = true
		}
	case "schema_location", "additional_schema_locations":
		if value != "" {
			err = errors.New("a render reads schemas from nowhere else: remove it, and add the CustomResourceDefinitions to the package")
		}
	default:
		err = errors.New("there is no such setting: use strict, ignore_missing_schemas or skip_kinds")
	}
	return err
}

func parseBool(value string) (bool, error) {
	parsed, err := strconv.ParseBool(strings.ToLower(value))
	if err != nil && value != "" {
		return false, fmt.Errorf("%q is neither \"true\" nor \"false\"", value)
	}
	return parsed, nil
}

// validate reports what is wrong with one resource and says whether nothing is.
func (c *kubeconformConfig) validate(list *ResourceList, item *Item, schemas *schema.Set) (bool, error) {
	m := metaOf(item.Object)
	kind := schema.Kind{Group: m.group(), Version: m.version(), Name: m.kind}
	switch {
	case c.skip[m.kind] || c.skip[m.apiVersion+"/"+m.kind]:
		return true, nil
	case !schemas.Has(kind) && (c.ignoreMissing || isLocalConfig(item.Object) || m.isKptfile()):
		return true, nil
	case !schemas.Has(kind):
		list.reportItem(item, Error, "kind", "there is no schema for %s of %s, neither in Kubernetes %s nor in the package: "+
			"add its CustomResourceDefinition, or set skip_kinds or ignore_missing_schemas", m.kind, m.apiVersion, schemas.Version())
		return false, nil
	}
	problems, err := schemas.Validate(kind, fieldsOf(item))
	for _, problem := range problems {
		list.reportItem(item, Error, problem.Field, "%s", problem.Message)
	}
	return len(problems) == 0, err
}

// fieldsOf returns a resource as JSON has it.
func fieldsOf(item *Item) map[string]any {
	fields, _ := jsonValue(withoutAliases(item.Object.YNode())).(map[string]any)
	return fields
}

// jsonValue converts a tree without aliases to what the API server would see of it.
func jsonValue(node *yaml.Node) any {
	switch node.Kind {
	case yaml.DocumentNode:
		return jsonValue(node.Content[0])
	case yaml.MappingNode:
		fields := make(map[string]any, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			fields[node.Content[i].Value] = jsonValue(node.Content[i+1])
		}
		return fields
	case yaml.SequenceNode:
		elements := make([]any, len(node.Content))
		for i, element := range node.Content {
			elements[i] = jsonValue(element)
		}
		return elements
	}
	return jsonScalar(node)
}

func jsonScalar(node *yaml.Node) any {
	switch node.ShortTag() {
	case yaml.NodeTagNull:
		return nil
	case yaml.NodeTagString:
		// kubectl reads YAML 1.1, in which a bare yes is a boolean.
		if node.Style == 0 && yaml.IsYaml1_1NonString(node) {
			return true
		}
	case yaml.NodeTagInt, yaml.NodeTagFloat, yaml.NodeTagBool:
		var value any
		if err := node.Decode(&value); err == nil {
			return value
		}
	}
	return node.Value
}
