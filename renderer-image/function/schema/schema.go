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
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

//go:generate go run ./generate ../../../devcluster kubernetes.json.gz

//go:embed kubernetes.json.gz
var kubernetes []byte

const (
	kubernetesURL = "kiln:///kubernetes/"
	objectMeta    = kubernetesURL + "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
)

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
	strict bool
	// version is the release of Kubernetes whose kinds the set knows.
	version  string
	compiler *jsonschema.Compiler
	// locations says where the schema of a kind is.
	locations map[Kind]string
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
		strict:    strict,
		version:   document.Version,
		compiler:  jsonschema.NewCompiler(),
		locations: make(map[Kind]string, len(document.Kinds)),
	}
	for name, definition := range document.Kinds {
		parts := strings.SplitN(name, "/", 3)
		s.locations[Kind{Group: parts[0], Version: parts[1], Name: parts[2]}] = kubernetesURL + definition
	}
	s.compiler.DefaultDraft(jsonschema.Draft4)
	s.compiler.UseLoader(definitionLoader{definitions: document.Definitions, strict: strict})
	return s, nil
}

// Version returns the release of Kubernetes whose kinds the set knows, for example v1.37.2.
func (s *Set) Version() string {
	return s.version
}

// definitionLoader gives out the definitions of Kubernetes, each when it is first needed. It keeps schemas from reading files and
// the network.
type definitionLoader struct {
	definitions map[string]json.RawMessage
	strict      bool
}

func (l definitionLoader) Load(url string) (any, error) {
	name, _ := strings.CutPrefix(url, kubernetesURL)
	switch name {
	case "io.k8s.apimachinery.pkg.api.resource.Quantity":
		return map[string]any{"type": []any{"string", "number"}}, nil
	case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
		return map[string]any{"type": []any{"string", "integer"}}, nil
	}
	text, found := l.definitions[name]
	if !found {
		return nil, fmt.Errorf("the schema refers to %q: write out what it stands for", url)
	}
	var definition map[string]any
	if err := json.Unmarshal(text, &definition); err != nil {
		return nil, err
	}
	if l.strict {
		closeObject(definition)
	}
	return definition, nil
}

// closeObject forbids fields that the schema does not name, where it names any and says nothing else.
func closeObject(schema map[string]any) {
	_, named := schema["properties"]
	if _, said := schema["additionalProperties"]; named && !said {
		schema["additionalProperties"] = false
	}
}

// Has says whether the set knows the kind.
func (s *Set) Has(kind Kind) bool {
	_, found := s.locations[kind]
	return found
}

// Validate returns what is wrong with a resource of a kind that the set has. The resource is made of what JSON has:
// map[string]any, []any, string, numbers and bool. A field whose value is null counts as left out, as for the API server.
func (s *Set) Validate(kind Kind, resource map[string]any) ([]Problem, error) {
	location, found := s.locations[kind]
	if !found {
		return nil, fmt.Errorf("there is no schema for %s of %s/%s", kind.Name, kind.Group, kind.Version)
	}
	compiled, err := s.compiler.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("use the schema of %s: %w", kind.Name, err)
	}
	pruned := withoutNulls(resource)
	err = compiled.Validate(pruned)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, err
	}
	var problems []Problem
	eachProblem(invalid, message.NewPrinter(language.English), func(location []string, text string) {
		problems = append(problems, Problem{Field: fieldPath(pruned, location), Message: text})
	})
	// The validator walks maps, so that the order would change from run to run.
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
	})
	return problems, nil
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

// eachProblem calls report for every error that has no cause below it.
func eachProblem(err *jsonschema.ValidationError, printer *message.Printer, report func([]string, string)) {
	if len(err.Causes) == 0 {
		report(err.InstanceLocation, err.ErrorKind.LocalizedString(printer))
	}
	for _, cause := range err.Causes {
		eachProblem(cause, printer, report)
	}
}

// fieldPath writes the location of a value as functions write fields.
func fieldPath(value any, location []string) string {
	var path strings.Builder
	for _, token := range location {
		switch parent := value.(type) {
		case []any:
			path.WriteString("[" + token + "]")
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(parent) {
				value = parent[i]
			}
		case map[string]any:
			path.WriteString("." + token)
			value = parent[token]
		}
	}
	return strings.TrimPrefix(path.String(), ".")
}
