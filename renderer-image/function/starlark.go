package function

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Limits of Starlark programs. Together they keep a program from taking the renderer down: the interpreter recurses on the
// Go stack, whose overflow cannot be caught.
const (
	// DefaultMaxSteps is how many interpreter steps a program may take: a few seconds.
	DefaultMaxSteps = 100_000_000
	maxSource       = 256 << 10
	maxCallDepth    = 1000
	stepsPerCheck   = 10_000
)

// Starlark runs a Starlark program over the resources. The program finds them in ctx.resource_list["items"] as dictionaries
// and edits, appends or removes them; ctx.resource_list["functionConfig"] is its configuration. print writes to stderr and
// fail stops with a message. It can load the modules listed at starlarkModules; there is no file, network or environment.
//
// The functionConfig is a StarlarkRun with the program in the field source and anything in params, or a ConfigMap with
// the program in data.source.
func Starlark(ctx context.Context, list *ResourceList) error {
	name, source, err := programOf(list.Config)
	if err != nil {
		return err
	}
	program, err := newStarlarkProgram(list)
	if err != nil {
		return err
	}
	if err := program.run(ctx, name, source); err != nil {
		return err
	}
	return program.writeBack()
}

func programOf(config *yaml.RNode) (name, source string, err error) {
	const wanted = "a StarlarkRun of " + configAPIVersion + " with the program in source, or a ConfigMap with it in data.source"
	switch {
	case config == nil:
		return "", "", wrongConfig(config, wanted)
	case isConfigMap(config):
		source = stringAt(config.YNode(), "data", "source")
	case isOwnKind(config, "StarlarkRun"):
		source = stringAt(config.YNode(), "source")
	default:
		return "", "", wrongConfig(config, wanted)
	}
	if source == "" {
		return "", "", errors.New("the functionConfig has no program: use " + wanted)
	}
	if len(source) > maxSource {
		return "", "", fmt.Errorf("the program is %d bytes long: at most %d are allowed", len(source), maxSource)
	}
	if name = metaOf(config).name; name == "" {
		name = "starlark"
	}
	return name, source, nil
}

type starlarkProgram struct {
	list  *ResourceList
	root  *starlark.Dict
	known map[*starlark.Dict]*starlarkItem
	byID  map[string]*starlarkItem
}

// starlarkItem is a resource and what of it the program was given.
type starlarkItem struct {
	item *Item
	// base is the tree that the program was given: the resource without YAML aliases, with the position's annotations.
	base *yaml.Node
	// position is what the item's annotations said.
	position position
}

func newStarlarkProgram(list *ResourceList) (*starlarkProgram, error) {
	p := &starlarkProgram{
		list:  list,
		root:  starlark.NewDict(4),
		known: make(map[*starlark.Dict]*starlarkItem, len(list.Items)),
		byID:  make(map[string]*starlarkItem, len(list.Items)),
	}
	values := make([]starlark.Value, 0, len(list.Items))
	for i, item := range list.Items {
		position := positionOf(item, i)
		base := position.annotate(withoutAliases(item.Object.YNode()))
		value, err := toStarlark(base)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.Path, err)
		}
		dict, ok := value.(*starlark.Dict)
		if !ok {
			return nil, fmt.Errorf("%s: the resource must be a mapping", item.Path)
		}
		known := &starlarkItem{item: item, base: base, position: position}
		p.known[dict] = known
		p.byID[position.id] = known
		values = append(values, dict)
	}
	set := func(key string, value starlark.Value) { _ = p.root.SetKey(starlark.String(key), value) }
	set("apiVersion", starlark.String("config.kubernetes.io/v1"))
	set("kind", starlark.String("ResourceList"))
	set("items", starlark.NewList(values))
	if list.Config != nil {
		config, err := toStarlark(withoutAliases(list.Config.YNode()))
		if err != nil {
			return nil, fmt.Errorf("the functionConfig: %w", err)
		}
		set("functionConfig", config)
	}
	return p, nil
}

func (p *starlarkProgram) run(ctx context.Context, name, source string) error {
	thread := &starlark.Thread{
		Name: name,
		Load: loadStarlarkModule,
		Print: func(_ *starlark.Thread, message string) {
			_, _ = p.list.Stderr.Write([]byte(message + "\n"))
		},
	}
	steps := p.list.MaxSteps
	if steps == 0 {
		steps = DefaultMaxSteps
	}
	thread.SetMaxExecutionSteps(min(stepsPerCheck, steps))
	thread.OnMaxSteps = func(thread *starlark.Thread) {
		switch done := thread.ExecutionSteps(); {
		case done >= steps:
			thread.Cancel(fmt.Sprintf("the program took more than %d steps", steps))
		case thread.CallStackDepth() > maxCallDepth:
			thread.Cancel(fmt.Sprintf("calls are nested deeper than %d", maxCallDepth))
		default:
			thread.SetMaxExecutionSteps(min(done+stepsPerCheck, steps))
		}
	}
	stop := context.AfterFunc(ctx, func() { thread.Cancel(ctx.Err().Error()) })
	defer stop()

	options := &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}
	predeclared := starlark.StringDict{
		"ctx": starlarkstruct.FromStringDict(starlark.String("context"), starlark.StringDict{
			"resource_list": p.root,
			"environment":   starlark.NewDict(0),
		}),
	}
	_, err := starlark.ExecFileOptions(options, thread, name, source, predeclared)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return p.explain(err)
}

// explain puts the call stack on stderr and keeps the message.
func (p *starlarkProgram) explain(err error) error {
	var evaluation *starlark.EvalError
	if errors.As(err, &evaluation) {
		_, _ = p.list.Stderr.Write([]byte(evaluation.Backtrace() + "\n"))
		if position := lastPosition(evaluation.CallStack); position != "" {
			return fmt.Errorf("%s: %s", position, evaluation.Msg)
		}
	}
	return err
}

// lastPosition is where in the program the innermost call stands.
func lastPosition(stack starlark.CallStack) string {
	for i := len(stack) - 1; i >= 0; i-- {
		if position := stack[i].Pos; position.Line > 0 && !strings.HasPrefix(position.Filename(), "<") {
			return position.String()
		}
	}
	return ""
}

// writeBack brings what the program left in ctx.resource_list into the resource list.
func (p *starlarkProgram) writeBack() error {
	value, found, _ := p.root.Get(starlark.String("items"))
	items, ok := value.(*starlark.List)
	if !found || !ok {
		return errors.New(`the program must leave a list in ctx.resource_list["items"]`)
	}
	written := make(map[*starlarkItem]bool, items.Len())
	out := make([]*Item, 0, items.Len())
	for i := range items.Len() {
		dict, ok := items.Index(i).(*starlark.Dict)
		if !ok {
			return fmt.Errorf(`ctx.resource_list["items"][%d] is a %s: it must be a dictionary`, i, items.Index(i).Type())
		}
		position, err := readPosition(dict)
		if err != nil {
			return fmt.Errorf(`ctx.resource_list["items"][%d]: %w`, i, err)
		}
		known := p.known[dict]
		if known == nil {
			known = p.byID[position.id]
		}
		if known != nil && written[known] {
			known = nil
		}
		item := &Item{Index: -1}
		if known == nil {
			node, err := fromStarlark(dict)
			if err != nil {
				return fmt.Errorf(`ctx.resource_list["items"][%d]: %w`, i, err)
			}
			stripPosition(node, nil)
			item.Object = yaml.NewRNode(node)
		} else {
			written[known] = true
			item = known.item
			if err := known.merge(dict); err != nil {
				return fmt.Errorf(`ctx.resource_list["items"][%d]: %w`, i, err)
			}
		}
		position.apply(item, known)
		out = append(out, item)
	}
	p.list.Items = out
	return nil
}

func (i *starlarkItem) merge(dict *starlark.Dict) error {
	root := i.item.Object.YNode()
	merged, changed, err := mergeStarlark(i.base, dict)
	if err != nil || !changed {
		return err
	}
	stripPosition(merged, root)
	*root = *merged
	return nil
}
