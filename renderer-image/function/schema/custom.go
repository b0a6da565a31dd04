package schema

import (
	"fmt"
	"maps"
	"slices"
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
		url := fmt.Sprintf("kiln:///definitions/%d", len(s.locations))
		if err := s.compiler.AddResource(url, s.root(openAPI)); err != nil {
			return fmt.Errorf("spec.versions[%d].schema.openAPIV3Schema: %w", i, err)
		}
		if _, err := s.compiler.Compile(url); err != nil {
			return fmt.Errorf("spec.versions[%d].schema.openAPIV3Schema: %w", i, err)
		}
		s.locations[kind] = url
	}
	return nil
}

func mapping(value any) map[string]any {
	fields, _ := value.(map[string]any)
	return fields
}

// root converts the schema of a whole resource: what every resource has need not be in it.
func (s *Set) root(openAPI map[string]any) map[string]any {
	schema := s.convert(openAPI, true)
	s.addResourceFields(schema)
	if s.strict && openAPI["x-kubernetes-preserve-unknown-fields"] != true {
		closeObject(schema)
	}
	return schema
}

func (s *Set) addResourceFields(schema map[string]any) {
	properties := maps.Clone(mapping(schema["properties"]))
	if properties == nil {
		properties = map[string]any{}
	}
	properties["apiVersion"] = map[string]any{"type": "string"}
	properties["kind"] = map[string]any{"type": "string"}
	properties["metadata"] = map[string]any{"$ref": objectMeta}
	schema["properties"] = properties
}

// convert makes a JSON schema of an OpenAPI v3 schema as Kubernetes allows it. structural is false inside of allOf, anyOf, oneOf
// and not, which add to what the fields around them say and so do not close objects.
func (s *Set) convert(openAPI map[string]any, structural bool) map[string]any {
	schema := map[string]any{}
	for key, value := range openAPI {
		switch key {
		case "type", "enum", "pattern", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "maxLength",
			"minLength", "maxItems", "minItems", "uniqueItems", "maxProperties", "minProperties":
			schema[key] = value
		case "format":
			// Other formats have several readings, or none outside of Kubernetes.
			if value == "date-time" || value == "ipv4" || value == "ipv6" {
				schema[key] = value
			}
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
		s.addResourceFields(schema)
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
