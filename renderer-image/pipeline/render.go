// Package pipeline gives Kptfiles their meaning: it finds the packages in a tree of files, runs their functions in order and
// says what the files look like afterwards. It works in memory and writes nowhere.
//
// Render reads top to bottom: read the files, order the packages, run each package's mutators and then its validators, and
// turn the resources into files again. A document that no function changed keeps its bytes.
package pipeline

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// Annotations of the root Kptfile that change how a package is rendered.
const (
	// SaveOnFailureAnnotation, set to "true" in any case of letters, asks for the files as they are when a render fails, half rendered.
	SaveOnFailureAnnotation = "kpt.dev/save-on-render-failure"
	// BreadthFirstAnnotation, set to "true" in any case of letters, asks for parents to be rendered before their children.
	BreadthFirstAnnotation = "kpt.dev/bfs-rendering"
)

// Options say how to render.
type Options struct {
	// Functions are the functions that may run.
	Functions function.Set
	// OnStep, when set, is called as each step ends.
	OnStep func(Step)
	// Limits bound the render. Zero fields mean the defaults.
	Limits Limits
}

// Limits bound what one render may use.
type Limits struct {
	// MaxResources is how many resources a package may have, before and after each function.
	MaxResources int
	// MaxFiles is how many files a package may have, before and after the render, sub-packages included.
	MaxFiles int
	// MaxDepth is how deep packages may be nested: the root is at depth 1.
	MaxDepth int
	// MaxFunctions is how many functions the pipelines of a package and its sub-packages may have in all.
	MaxFunctions int
	// MaxBytes is how large all files together may be, in bytes, before and after the render.
	MaxBytes int
	// MaxStderr is how much of a function's standard error is kept, in bytes.
	MaxStderr int
	// MaxResults is how many results of one function are kept.
	MaxResults int
	// MaxStarlarkSteps bounds a Starlark program, in interpreter steps.
	MaxStarlarkSteps uint64
	// FunctionTimeout is how long one function may run.
	FunctionTimeout time.Duration
}

// The default limits.
const (
	DefaultMaxResources    = 10_000
	DefaultMaxFiles        = 20_000
	DefaultMaxDepth        = 32
	DefaultMaxFunctions    = 500
	DefaultMaxBytes        = 16 << 20
	DefaultMaxStderr       = 16 << 10
	DefaultMaxResults      = 1_000
	DefaultFunctionTimeout = time.Minute
)

func (l Limits) withDefaults() Limits {
	orDefault := func(limit *int, value int) {
		if *limit <= 0 {
			*limit = value
		}
	}
	orDefault(&l.MaxResources, DefaultMaxResources)
	orDefault(&l.MaxFiles, DefaultMaxFiles)
	orDefault(&l.MaxDepth, DefaultMaxDepth)
	orDefault(&l.MaxFunctions, DefaultMaxFunctions)
	orDefault(&l.MaxBytes, DefaultMaxBytes)
	orDefault(&l.MaxStderr, DefaultMaxStderr)
	orDefault(&l.MaxResults, DefaultMaxResults)
	if l.MaxStarlarkSteps == 0 {
		l.MaxStarlarkSteps = function.DefaultMaxSteps
	}
	if l.FunctionTimeout <= 0 {
		l.FunctionTimeout = DefaultFunctionTimeout
	}
	return l
}

// Outcome is what a render produced.
type Outcome struct {
	// Files are all files after the render, slash path → text. When it failed they are the input, or what was rendered so
	// far when the root Kptfile asks for that.
	Files map[string]string
	// Steps are the functions that ran, in order, the failed one last.
	Steps []Step
	// Failure is nil when everything succeeded.
	Failure *Failure
}

// Phase is the part of a pipeline that a step belongs to.
type Phase string

// The phases, in the order they run.
const (
	Mutate   Phase = "mutate"
	Validate Phase = "validate"
)

// Step is one run of one function.
type Step struct {
	// Package is the slash path of the package whose pipeline has the function, "." for the root.
	Package string
	Phase   Phase
	// Name is the function's name in the Kptfile, often empty.
	Name string
	// Image or Exec is how the Kptfile names the function.
	Image, Exec string
	// ExitCode is 0 when the function succeeded.
	ExitCode int
	// Stderr is what the function printed, cut off at Limits.MaxStderr.
	Stderr string
	// Results are at most Limits.MaxResults of the function's results.
	Results []function.Result
	// Items is how many resources the function was given.
	Items    int
	Duration time.Duration
}

// Render runs the package's pipelines on files, which map slash paths to text with the root Kptfile at "Kptfile", and returns
// the outcome. It does not modify files. What a user can put right is in Outcome.Failure; the error is for a done context only.
func Render(ctx context.Context, files map[string]string, options Options) (*Outcome, error) {
	r := &renderer{
		files:     files,
		functions: options.Functions,
		onStep:    options.OnStep,
		limits:    options.Limits.withDefaults(),
	}
	err := r.render(ctx)
	outcome := &Outcome{Files: files, Steps: r.steps}
	if err == nil {
		outcome.Files, err = r.write(true)
	}
	if err == nil {
		return outcome, nil
	}
	failure := &Failure{}
	if !errors.As(err, &failure) {
		return nil, err
	}
	outcome.Failure = failure
	outcome.Files = r.filesAfterFailure()
	return outcome, nil
}

type renderer struct {
	files     map[string]string
	functions function.Set
	onStep    func(Step)
	limits    Limits

	// packages are parents before children, siblings by name; the root is the first.
	packages []*pkg
	byDir    map[string]*pkg
	// resources are those of all packages in the order of packages, each package's in the order of its files.
	resources []*resource
	// original are the resources of each file as they were read.
	original map[string][]*resource
	steps    []Step
}

func (r *renderer) render(ctx context.Context) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	for _, p := range r.order() {
		if err := r.renderPackage(ctx, p); err != nil {
			return err
		}
	}
	return r.checkKptfiles()
}

// renderPackage runs the pipeline of p on its own resources and all those of the packages below it.
func (r *renderer) renderPackage(ctx context.Context, p *pkg) error {
	k := p.kptfile
	if len(k.mutators)+len(k.validators) == 0 {
		return r.checkResources(p)
	}
	for i := range k.mutators {
		if f := &k.mutators[i]; f.exec != "" {
			return r.reject(p, Mutate, f, 0, refuseExec(p, f))
		}
	}
	for i := range k.mutators {
		if err := r.mutate(ctx, p, &k.mutators[i]); err != nil {
			return err
		}
	}
	for i := range k.validators {
		if err := r.validate(ctx, p, &k.validators[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) filesAfterFailure() map[string]string {
	if r.saveOnFailure() {
		if files, err := r.write(false); err == nil {
			return files
		}
	}
	return maps.Clone(r.files)
}

func (r *renderer) saveOnFailure() bool {
	return len(r.packages) > 0 && r.packages[0].kptfile != nil && isTrue(r.packages[0].kptfile.annotations[SaveOnFailureAnnotation])
}
