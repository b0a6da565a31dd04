// Package schema validates resources against the schemas of Kubernetes' own kinds and of CustomResourceDefinitions.
//
// The schemas of Kubernetes are part of the program (23 KB compressed): a render has no network. They are read when the first
// Set is made, not when the program starts.
package schema

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	validation "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

//go:generate go run ./generate ../../../devcluster kubernetes.json.gz

//go:embed kubernetes.json.gz
var kubernetes []byte

const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// Kind names a kind of resources. The group of the core kinds is empty.
type Kind struct {
	Group, Version, Name string
}

// Problem is one way in which a resource does not fit its schema.
type Problem struct {
	// Field is dotted, for example spec.containers[0].image; empty for the resource itself.
	Field   string
	Message string
}

// Set is the schemas that one run knows. It is not safe for concurrent use.
type Set struct {
	strict  bool
	version string
	// kinds says which definition describes a kind.
	kinds map[Kind]string
	// texts are the definitions as they were read; most are never needed.
	texts map[string]json.RawMessage
	// definitions are those that were needed.
	definitions map[string]*spec.Schema
}

// New returns the schemas of Kubernetes' own kinds. With strict, they allow no field that they do not name.
func New(strict bool) (*Set, error) {
	reader, err := gzip.NewReader(bytes.NewReader(kubernetes))
	if err != nil {
		return nil, fmt.Errorf("read the schemas of Kubernetes: %w", err)
	}
	var document struct {
		Version     string                     `json:"version"`
		Kinds       map[string]string          `json:"kinds"`
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	if err := json.NewDecoder(reader).Decode(&document); err != nil {
		return nil, fmt.Errorf("parse the schemas of Kubernetes: %w", err)
	}
	s := &Set{
		strict:  strict,
		version: document.Version,
		kinds:   make(map[Kind]string, len(document.Kinds)),
		texts:   document.Definitions,
		// Two types have two forms, which the OpenAPI document cannot say.
		definitions: map[string]*spec.Schema{
			"io.k8s.apimachinery.pkg.api.resource.Quantity":   typed("string", "number"),
			"io.k8s.apimachinery.pkg.util.intstr.IntOrString": typed("string", "integer"),
		},
	}
	for name, definition := range document.Kinds {
		parts := strings.SplitN(name, "/", 3)
		s.kinds[Kind{Group: parts[0], Version: parts[1], Name: parts[2]}] = definition
	}
	return s, nil
}

func typed(types ...string) *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Type: types}}
}

// Version returns the release of Kubernetes whose kinds the set knows, for example v1.37.2.
func (s *Set) Version() string {
	return s.version
}

// definition returns the definition of that name, which must be there.
func (s *Set) definition(name string) (*spec.Schema, error) {
	if known := s.definitions[name]; known != nil {
		return known, nil
	}
	definition := &spec.Schema{}
	if err := json.Unmarshal(s.texts[name], definition); err != nil {
		return nil, fmt.Errorf("parse the schema %s: %w", name, err)
	}
	if s.strict && len(definition.Properties) > 0 && definition.AdditionalProperties == nil {
		definition.AdditionalProperties = &spec.SchemaOrBool{}
	}
	s.definitions[name] = definition
	return definition, nil
}

// Has says whether the set knows the kind.
func (s *Set) Has(kind Kind) bool {
	_, found := s.kinds[kind]
	return found
}

// Validate returns what is wrong with a resource of a kind that the set has. The resource is made of what JSON has:
// map[string]any, []any, string, numbers and bool. A field whose value is null counts as left out, as for the API server.
func (s *Set) Validate(kind Kind, resource map[string]any) ([]Problem, error) {
	name, found := s.kinds[kind]
	if !found {
		return nil, fmt.Errorf("there is no schema for %s of %s/%s", kind.Name, kind.Group, kind.Version)
	}
	definition, err := s.definition(name)
	if err != nil {
		return nil, err
	}
	w := &walker{set: s}
	result := w.validator(definition, nil, "", strfmt.Default).Validate(withoutNulls(resource))
	if w.err != nil {
		return nil, w.err
	}
	var problems []Problem
	for _, problem := range result.Errors {
		problems = appendProblem(problems, problem)
	}
	// The validator walks maps, so that the order would change from run to run.
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(problems), nil
}

// walker follows references while a resource is validated; the validator itself knows none.
type walker struct {
	set *Set
	err error
}

func (w *walker) validator(schema *spec.Schema, root any, path string, formats strfmt.Registry) *validate.SchemaValidator {
	if name := schema.Ref.String(); name != "" {
		definition, err := w.set.definition(name)
		if err != nil {
			w.err = err
			definition = &spec.Schema{}
		}
		schema = definition
	}
	return validate.NewSchemaValidator(schema, root, path, formats, func(options *validate.SchemaValidatorOptions) {
		options.NewValidatorForField = func(_ string, schema *spec.Schema, root any, path string, formats strfmt.Registry,
			_ ...validate.Option) validate.ValueValidator {
			return w.validator(schema, root, path, formats)
		}
		options.NewValidatorForIndex = func(_ int, schema *spec.Schema, root any, path string, formats strfmt.Registry,
			_ ...validate.Option) validate.ValueValidator {
			return w.validator(schema, root, path, formats)
		}
	})
}

func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(value))
		for key, part := range value {
			if part != nil {
				kept[key] = withoutNulls(part)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, part := range value {
			kept[i] = withoutNulls(part)
		}
		return kept
	}
	return value
}

// appendProblem appends an error of the validator, or those that it is made of.
func appendProblem(problems []Problem, err error) []Problem {
	var composite *validation.CompositeError
	if errors.As(err, &composite) && len(composite.Errors) > 0 {
		for _, part := range composite.Errors {
			problems = appendProblem(problems, part)
		}
		return problems
	}
	// The validator was made for HTTP requests.
	problem := Problem{Message: strings.Replace(strings.TrimPrefix(err.Error(), "."), " in body", "", 1)}
	var invalid *validation.Validation
	if errors.As(err, &invalid) {
		problem.Field = strings.TrimPrefix(invalid.Name, ".")
		if invalid.Code() == validation.UnallowedPropertyCode {
			problem.Field, _, _ = strings.Cut(problem.Message, " ")
			problem.Message = problem.Field + " is not a field of the schema"
		}
	}
	return append(problems, problem)
}
