package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// mutate runs one mutator of p and takes over what it did.
func (r *renderer) mutate(ctx context.Context, p *pkg, f *functionRef) error {
	before, scope, after := r.scope(p)
	input, config, err := r.input(p, f, scope)
	if err != nil {
		return r.reject(p, Mutate, f, len(input), err)
	}
	var backup *backup
	if r.saveOnFailure() {
		backup = backUp(input)
	}
	list := r.newResourceList(p, input, config)
	step, err := r.run(ctx, p, Mutate, f, list)
	if err == nil {
		scope, err = r.place(p, f, scope, input, list.Items)
	}
	if failure := (*Failure)(nil); errors.As(err, &failure) && step.ExitCode == 0 {
		step.ExitCode = 1
		step.Stderr = strings.TrimPrefix(step.Stderr+"\n"+failure.Message, "\n")
	}
	r.ended(step)
	if err != nil {
		backup.restore()
		return err
	}
	r.resources = slices.Concat(before, scope, after)
	return nil
}

// validate runs one validator of p on copies.
func (r *renderer) validate(ctx context.Context, p *pkg, f *functionRef) error {
	_, scope, _ := r.scope(p)
	input, config, err := r.input(p, f, scope)
	if err != nil {
		return r.reject(p, Validate, f, len(input), err)
	}
	list := r.newResourceList(p, copies(input), config)
	step, err := r.run(ctx, p, Validate, f, list)
	r.ended(step)
	return err
}

// reject records a step that could not begin.
func (r *renderer) reject(p *pkg, phase Phase, f *functionRef, items int, err error) error {
	step := newStep(p, phase, f, items)
	step.ExitCode = 1
	step.Stderr = err.Error()
	r.ended(step)
	return err
}

func newStep(p *pkg, phase Phase, f *functionRef, items int) Step {
	return Step{Package: p.label(), Phase: phase, Name: f.name, Image: f.image, Exec: f.exec, Items: items}
}

func (r *renderer) ended(step Step) {
	r.steps = append(r.steps, step)
	if r.onStep != nil {
		r.onStep(step)
	}
}

// scope splits the resources into those of p and the packages below it and those before and after these.
func (r *renderer) scope(p *pkg) (before, scope, after []*resource) {
	for _, resource := range r.resources {
		switch {
		case p.contains(resource.Path):
			scope = append(scope, resource)
		case len(scope) == 0:
			before = append(before, resource)
		default:
			after = append(after, resource)
		}
	}
	return before, scope, after
}

// input returns the resources and the configuration that the function gets.
func (r *renderer) input(p *pkg, f *functionRef, scope []*resource) ([]*resource, *yaml.RNode, error) {
	selected, err := selectInput(f, scope)
	if err != nil {
		return selected, nil, err
	}
	config, err := r.config(p, f)
	return selected, config, err
}

// selectInput returns what the function gets of scope; all of it must be resources.
func selectInput(f *functionRef, scope []*resource) ([]*resource, error) {
	input := make([]*resource, 0, len(scope))
	for _, resource := range scope {
		root := resource.Object.YNode()
		if !f.selects(root) {
			continue
		}
		if err := checkResource(resource); err != nil {
			return input, err
		}
		input = append(input, resource)
	}
	return input, nil
}

// checkResources is what a package without functions asks of its resources.
func (r *renderer) checkResources(p *pkg) error {
	for _, resource := range r.resources {
		if !p.contains(resource.Path) {
			continue
		}
		if err := checkResource(resource); err != nil {
			return err
		}
	}
	return nil
}

func checkResource(resource *resource) error {
	if lacks := problem(resource.Path, resource.Object.YNode()); lacks != "" {
		return failf(InvalidPackage, "%s: %s: the resource has none: set it, or list the file in %s", resource.Path, lacks, ignoreName)
	}
	return nil
}

// newResourceList hands resources to a function of p, their paths relative to p until they are placed again.
func (r *renderer) newResourceList(p *pkg, input []*resource, config *yaml.RNode) *function.ResourceList {
	list := &function.ResourceList{Items: make([]*function.Item, len(input)), Config: config}
	for i, resource := range input {
		resource.Package = ""
		if owner := r.ownerOf(resource.Path); owner != p {
			resource.Package = p.relative(owner.dir)
		}
		resource.Path = p.relative(resource.Path)
		list.Items[i] = &resource.Item
	}
	return list
}

// run runs the function of f over list. A failed function is a *Failure; any other error is the context's.
func (r *renderer) run(ctx context.Context, p *pkg, phase Phase, f *functionRef, list *function.ResourceList) (Step, error) {
	step := newStep(p, phase, f, len(list.Items))
	start := time.Now()
	err := r.call(ctx, p, f, list, &step)
	step.Duration = time.Since(start)
	if err != nil {
		step.ExitCode = 1
	}
	return step, err
}

func (r *renderer) call(ctx context.Context, p *pkg, f *functionRef, list *function.ResourceList, step *Step) error {
	at := p.file(kptfileName) + ": " + f.field
	if f.exec != "" {
		return refuseExec(p, f)
	}
	call, found := r.functions.Lookup(f.image)
	if !found {
		return failf(FunctionNotFound, "%s.image: %q is not an available function: use one of %s", at, f.image,
			strings.Join(r.functions.Names(), ", "))
	}
	stderr := &boundedText{limit: r.limits.MaxStderr}
	list.Stderr, list.MaxSteps = stderr, r.limits.MaxStarlarkSteps

	callContext, cancel := context.WithTimeout(ctx, r.limits.FunctionTimeout)
	defer cancel()
	err := callSafely(callContext, call, list)
	step.Stderr = stderr.String()
	step.Results = bound(list.Results, r.limits.MaxResults)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("render the package %q: %w", p.label(), ctx.Err())
	case err != nil && callContext.Err() != nil:
		return failf(FunctionTimedOut, "%s: %s ran longer than %s: make it do less", at, f.id(), r.limits.FunctionTimeout)
	case err != nil && !errors.Is(err, function.ErrFailed):
		step.Results = append(step.Results, function.Result{Severity: function.Error, Message: err.Error()})
		return failf(FunctionFailed, "%s: %s failed: %s", at, f.id(), err)
	case len(list.Items) > r.limits.MaxResources:
		return failf(TooLarge, "%s: %s left %d resources: at most %d are allowed", at, f.id(), len(list.Items), r.limits.MaxResources)
	}
	for _, result := range list.Results {
		if result.Severity == function.Error {
			return failf(FunctionFailed, "%s: %s failed: %s", at, f.id(), describe(result))
		}
	}
	if err != nil {
		return failf(FunctionFailed, "%s: %s failed: %s", at, f.id(), err)
	}
	return nil
}

func refuseExec(p *pkg, f *functionRef) *Failure {
	return failf(ExecRefused, "%s: %s.exec: programs of the machine are not run here: use image", p.file(kptfileName), f.field)
}

// callSafely turns a panic into an error: a function is fed with anything a user may write.
func callSafely(ctx context.Context, call function.Func, list *function.ResourceList) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			_, _ = list.Stderr.Write(debug.Stack())
			err = fmt.Errorf("the function crashed: %v", problem)
		}
	}()
	return call(ctx, list)
}

// describe puts where a result was found before what it says.
func describe(result function.Result) string {
	text := result.Message
	if result.Field != nil && result.Field.Path != "" {
		text = result.Field.Path + ": " + text
	}
	if result.File != nil && result.File.Path != "" {
		text = result.File.Path + ": " + text
	}
	return text
}
