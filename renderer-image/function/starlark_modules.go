package function

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	starlarkjson "go.starlark.net/lib/json"
	starlarkmath "go.starlark.net/lib/math"
	starlarktime "go.starlark.net/lib/time"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

var errKey = errors.New("a key must be a string")

// starlarkModules are what programs can load, by the names they have in the function catalog. Modules that reach the
// network or read files are left out on purpose.
var starlarkModules = map[string]starlark.StringDict{
	"encoding/base64.star": module("base64", map[string]builtin{"encode": base64Encode, "decode": base64Decode}),
	"encoding/csv.star":    module("csv", map[string]builtin{"read_all": csvReadAll, "write_all": csvWriteAll}),
	"encoding/json.star":   {"json": starlarkjson.Module},
	"encoding/yaml.star":   module("yaml", map[string]builtin{"loads": yamlLoads, "dumps": yamlDumps}),
	"hash.star":            module("hash", map[string]builtin{"md5": hashWith(md5.New), "sha1": hashWith(sha1.New), "sha256": hashWith(sha256.New)}),
	"krmfn.star": module("krmfn", map[string]builtin{
		"match_gvk": matchGVK, "match_name": matchName, "match_namespace": matchNamespace,
	}),
	"math.star": {"math": starlarkmath.Module},
	"re.star": module("re", map[string]builtin{
		"findall": reFindAll, "match": reMatch, "search": reSearch, "split": reSplit, "sub": reSub,
	}),
	"time.star": {"time": starlarktime.Module},
}

type builtin func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error)

func module(name string, functions map[string]builtin) starlark.StringDict {
	members := starlark.StringDict{}
	for function, call := range functions {
		members[function] = starlark.NewBuiltin(name+"."+function, call)
	}
	return starlark.StringDict{name: &starlarkstruct.Module{Name: name, Members: members}}
}

func loadStarlarkModule(_ *starlark.Thread, name string) (starlark.StringDict, error) {
	members, found := starlarkModules[name]
	if !found {
		return nil, fmt.Errorf("there is no module %q: use one of %s", name,
			strings.Join(slices.Sorted(maps.Keys(starlarkModules)), ", "))
	}
	return members, nil
}

func base64Encode(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var source, encoding string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "src", &source, "encoding?", &encoding); err != nil {
		return nil, err
	}
	coder, err := base64Coder(encoding)
	if err != nil {
		return nil, err
	}
	return starlark.String(coder.EncodeToString([]byte(source))), nil
}

func base64Decode(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var source, encoding string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "src", &source, "encoding?", &encoding); err != nil {
		return nil, err
	}
	coder, err := base64Coder(encoding)
	if err != nil {
		return nil, err
	}
	decoded, err := coder.DecodeString(source)
	if err != nil {
		return nil, err
	}
	return starlark.String(decoded), nil
}

func base64Coder(encoding string) (*base64.Encoding, error) {
	switch encoding {
	case "", "standard":
		return base64.StdEncoding, nil
	case "standard_raw":
		return base64.RawStdEncoding, nil
	case "url":
		return base64.URLEncoding, nil
	case "url_raw":
		return base64.RawURLEncoding, nil
	}
	return nil, fmt.Errorf("unknown encoding %q: use standard, standard_raw, url or url_raw", encoding)
}

func yamlLoads(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var source string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "source", &source); err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(source), &node); err != nil {
		return nil, err
	}
	if node.Kind == 0 {
		return starlark.None, nil
	}
	if err := CheckAliases(&node); err != nil {
		return nil, err
	}
	return toStarlark(withoutAliases(&node))
}

func yamlDumps(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var value starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "obj", &value); err != nil {
		return nil, err
	}
	node, err := fromStarlark(value)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	if err := encoder.Encode(node); err != nil {
		return nil, err
	}
	return starlark.String(text.String()), nil
}

// matchGVK compares the apiVersion as if it had no group, so it only finds kinds of the core group. That is what the module of the
// function catalog does, and programs are written and tested against it.
func matchGVK(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var resource *starlark.Dict
	var apiVersion, kind string
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 3, &resource, &apiVersion, &kind); err != nil {
		return nil, err
	}
	matches := !strings.Contains(apiVersion, "/") && dictString(resource, "apiVersion") == apiVersion &&
		dictString(resource, "kind") == kind
	return starlark.Bool(matches), nil
}

func matchName(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return matchMetadata("name", b, args, kwargs)
}

func matchNamespace(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return matchMetadata("namespace", b, args, kwargs)
}

func matchMetadata(field string, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var resource *starlark.Dict
	var wanted string
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 2, &resource, &wanted); err != nil {
		return nil, err
	}
	metadata, _, _ := resource.Get(starlark.String("metadata"))
	dict, ok := metadata.(*starlark.Dict)
	return starlark.Bool(ok && dictString(dict, field) == wanted), nil
}

func dictString(dict *starlark.Dict, key string) string {
	value, _, _ := dict.Get(starlark.String(key))
	text, _ := value.(starlark.String)
	return string(text)
}

// The regular expressions are Go's: linear time, no backtracking.

func reFindAll(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	expression, text, err := unpackPattern(b, args, kwargs)
	if err != nil {
		return nil, err
	}
	var found []starlark.Value
	for _, match := range expression.FindAllStringSubmatch(text, -1) {
		found = append(found, groups(match))
	}
	return starlark.NewList(found), nil
}

// groups is what findall gives for one match: the only group, all groups, or the whole match when there are none.
func groups(match []string) starlark.Value {
	switch len(match) {
	case 1:
		return starlark.String(match[0])
	case 2:
		return starlark.String(match[1])
	}
	return tupleOf(match[1:])
}

func tupleOf(texts []string) starlark.Tuple {
	tuple := make(starlark.Tuple, len(texts))
	for i, text := range texts {
		tuple[i] = starlark.String(text)
	}
	return tuple
}

// reMatch returns the match at the start of the text with its groups, None without one.
func reMatch(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	expression, text, err := unpackPattern(b, args, kwargs)
	if err != nil {
		return nil, err
	}
	if at := expression.FindStringIndex(text); at == nil || at[0] != 0 {
		return starlark.None, nil
	}
	return tupleOf(expression.FindStringSubmatch(text)), nil
}

// reSearch returns where the first match starts and ends, None without one.
func reSearch(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	expression, text, err := unpackPattern(b, args, kwargs)
	if err != nil {
		return nil, err
	}
	at := expression.FindStringIndex(text)
	if at == nil {
		return starlark.None, nil
	}
	start := utf8.RuneCountInString(text[:at[0]])
	return starlark.NewList([]starlark.Value{
		starlark.MakeInt(start), starlark.MakeInt(start + utf8.RuneCountInString(text[at[0]:at[1]])),
	}), nil
}

func reSplit(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	expression, text, err := unpackPattern(b, args, kwargs)
	if err != nil {
		return nil, err
	}
	return tupleOf(expression.Split(text, -1)), nil
}

func reSub(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var pattern, replacement, text string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "pattern", &pattern, "repl", &replacement, "text", &text); err != nil {
		return nil, err
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return starlark.String(expression.ReplaceAllString(text, replacement)), nil
}

func unpackPattern(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (*regexp.Regexp, string, error) {
	var pattern, text string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "pattern", &pattern, "text", &text); err != nil {
		return nil, "", err
	}
	expression, err := regexp.Compile(pattern)
	return expression, text, err
}
