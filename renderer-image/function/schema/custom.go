package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// AddDefinition adds the kinds that a CustomResourceDefinition (apiextensions.k8s.io/v1) defines. Kinds without a schema are
// not added.
func (s *Set) AddDefinition(definition map[string]any) error {
	spec := mapping(definition["spec"])
	group, _ := spec["group"].(string)
	name, _ := mapping(spec["names"])["kind"].(string)
	versions, _ := spec["versions"].([]any)
	for i, entry := range versions {
		version := mapping(entry)
		number, _ := version["name"].(string)
		openAPI, found := mapping(version["schema"])["openAPIV3Schema"].(map[string]any)
		if !found {
			continue
		}
		kind := Kind{Group: group, Version: number, Name: name}
		if s.Has(kind) {
			continue
		}
		schema, err := s.root(openAPI)
		if err != nil {
			return fmt.Errorf("spec.versions[%d].schema.openAPIV3Schema: %w", i, err)
		}
		key := fmt.Sprintf("custom %d", len(s.kinds))
		s.kinds[kind], s.definitions[key] = key, schema
	}
	return nil
}

func mapping(value any) map[string]any {
	fields, _ := value.(map[string]any)
	return fields
}

// root converts the schema of a whole resource: what every resource has need not be in it.
func (s *Set) root(openAPI map[string]any) (*spec.Schema, error) {
	converted := s.convert(openAPI, true)
	addResourceFields(converted)
	if s.strict && openAPI["x-kubernetes-preserve-unknown-fields"] != true {
		closeObject(converted)
	}
	text, err := json.Marshal(converted)
	if err != nil {
		return nil, err
	}
	schema := &spec.Schema{}
	return schema, json.Unmarshal(text, schema)
}

// closeObject forbids fields that the schema does not name, where it names any and says nothing else.
func closeObject(schema map[string]any) {
	_, named := schema["properties"]
	if _, said := schema["additionalProperties"]; named && !said {
		schema["additionalProperties"] = false
	}
}

func addResourceFields(schema map[string]any) {
	properties := maps.Clone(mapping(schema["properties"]))
	if properties == nil {
		properties = map[string]any{}
	}
	properties["apiVersion"] = map[string]any{"type": "string"}
	properties["kind"] = map[string]any{"type": "string"}
	properties["metadata"] = map[string]any{"$ref": objectMeta}
	schema["properties"] = properties
}

// convert reduces an OpenAPI v3 schema to what the validator knows. structural is false inside of allOf, anyOf, oneOf
// and not, which add to what the fields around them say and so do not close objects.
func (s *Set) convert(openAPI map[string]any, structural bool) map[string]any {
	schema := map[string]any{}
	for key, value := range openAPI {
		switch key {
		case "type", "enum", "pattern", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "maxLength",
			"minLength", "maxItems", "minItems", "uniqueItems", "maxProperties", "minProperties", "nullable",
			"format":
			schema[key] = value
		case "items", "not", "additionalProperties":
			schema[key] = s.convertAny(value, structural && key != "not")
		case "allOf", "anyOf", "oneOf":
			schema[key] = s.convertAny(value, false)
		case "properties":
			properties := map[string]any{}
			for name, property := range mapping(value) {
				properties[name] = s.convertAny(property, structural)
			}
			schema[key] = properties
		case "required":
			if required := requiredOf(openAPI); len(required) > 0 {
				schema[key] = required
			}
		}
	}
	if openAPI["x-kubernetes-int-or-string"] == true {
		schema["type"] = []any{"string", "integer"}
		delete(schema, "anyOf")
	}
	if openAPI["x-kubernetes-embedded-resource"] == true {
		addResourceFields(schema)
	}
	if s.strict && structural && openAPI["x-kubernetes-preserve-unknown-fields"] != true {
		closeObject(schema)
	}
	return schema
}

func (s *Set) convertAny(value any, structural bool) any {
	switch value := value.(type) {
	case map[string]any:
		return s.convert(value, structural)
	case []any:
		converted := make([]any, len(value))
		for i, part := range value {
			converted[i] = s.convertAny(part, structural)
		}
		return converted
	}
	return value
}

// requiredOf leaves out the fields that may be null: a null counts as a missing field here.
func requiredOf(openAPI map[string]any) []any {
	required, _ := openAPI["required"].([]any)
	properties := mapping(openAPI["properties"])
	return slices.DeleteFunc(slices.Clone(required), func(name any) bool {
		text, _ := name.(string)
		return mapping(properties[text])["nullable"] == true
	})
}
