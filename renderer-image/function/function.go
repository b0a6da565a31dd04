// Package function holds the functions that the renderer runs without a container of their own.
//
// A function receives the resources of a package as YAML trees in memory and edits them in place. Nothing is serialised
// between two functions, so a pipeline of built-ins costs one parse and, for changed documents only, one encode.
package function

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Func runs one function over a resource list. It edits list.Items (in place, or by replacing the slice) and appends to
// list.Results. It fails by returning an error or by reporting a result of severity Error; either way what it did to the
// items is thrown away. It must return promptly once ctx is done.
type Func func(ctx context.Context, list *ResourceList) error

// ResourceList is what a function works on.
type ResourceList struct {
	// Items are the resources the function may read and change. Removing one deletes it, appending one creates it. A
	// resource is known by its pointer: a function that keeps the pointer keeps the resource's comments and file.
	Items []*Item
	// Config is the functionConfig, nil when the Kptfile gives none. It is a copy: changing it changes nothing else.
	Config *yaml.RNode
	// Results is what the function reports.
	Results []Result
	// Stderr takes what the function prints. It is bounded by the caller; writes never fail.
	Stderr io.Writer
	// MaxSteps bounds the work of interpreted programs, in interpreter steps. Zero means DefaultMaxSteps.
	MaxSteps uint64
}

// Item is one resource of a ResourceList.
type Item struct {
	// Object is the resource itself.
	Object *yaml.RNode
	// Path is the slash path of the file that holds it, relative to the running package. Changing it moves the resource.
	// Empty on a new resource: it gets a path made from its kind and name.
	Path string
	// Package is the folder of the sub-package that has the resource, relative to the running package; empty for the
	// running package itself. Resources that a function makes have none.
	Package string
	// Index is the position among the documents of the file. Negative on a new resource: it goes last.
	Index int
}

// Severity tells how much a result matters.
type Severity string

// The severities, as KRM functions write them. Only Error fails a function.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// Result is one thing a function wants its user to know.
type Result struct {
	Message     string       `json:"message"`
	Severity    Severity     `json:"severity,omitempty"`
	ResourceRef *ResourceRef `json:"resourceRef,omitempty"`
	Field       *Field       `json:"field,omitempty"`
	File        *File        `json:"file,omitempty"`
}

// ResourceRef names the resource a result is about.
type ResourceRef struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
}

// Field names the field a result is about.
type Field struct {
	// Path is dotted, for example spec.template.metadata.labels.
	Path          string `json:"path,omitempty"`
	CurrentValue  string `json:"currentValue,omitempty"`
	ProposedValue string `json:"proposedValue,omitempty"`
}

// File names the file a result is about.
type File struct {
	// Path is relative to the running package.
	Path  string `json:"path,omitempty"`
	Index int    `json:"index,omitempty"`
}

// ErrFailed is what a function returns that already said what is wrong in its results.
var ErrFailed = errors.New("the function failed, see its results")

// report appends a result about the list as a whole.
func (l *ResourceList) report(severity Severity, format string, args ...any) {
	l.Results = append(l.Results, Result{Severity: severity, Message: fmt.Sprintf(format, args...)})
}

// reportItem appends a result about one field of one resource.
func (l *ResourceList) reportItem(item *Item, severity Severity, field, format string, args ...any) {
	result := Result{
		Severity:    severity,
		Message:     fmt.Sprintf(format, args...),
		ResourceRef: item.ref(),
	}
	// A new resource has no file yet.
	if item.Path != "" {
		result.File = &File{Path: item.Path, Index: max(item.Index, 0)}
	}
	if field != "" {
		result.Field = &Field{Path: field}
	}
	l.Results = append(l.Results, result)
}

// reportChange appends a result about a field that got another value.
func (l *ResourceList) reportChange(item *Item, field, current, proposed, format string, args ...any) {
	l.reportItem(item, Info, field, format, args...)
	changed := l.Results[len(l.Results)-1].Field
	changed.CurrentValue, changed.ProposedValue = current, proposed
}

func (i *Item) ref() *ResourceRef {
	meta := metaOf(i.Object)
	return &ResourceRef{APIVersion: meta.apiVersion, Kind: meta.kind, Namespace: meta.namespace, Name: meta.name}
}
