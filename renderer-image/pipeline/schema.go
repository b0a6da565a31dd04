package pipeline

import (
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// fields are the names that a mapping may have, each with the fields below it; nil allows anything there. For a list they
// are the fields of its elements.
type fields map[string]fields

// kptfileFields is the schema kpt.dev/v1. A field that is not part of it is refused, as kpt does: misspelt, it would
// otherwise change nothing, silently. What tools write into the status is theirs.
var kptfileFields = fields{
	"apiVersion": nil,
	"kind":       nil,
	"metadata":   {"name": nil, "namespace": nil, "labels": nil, "annotations": nil},
	"upstream": {
		"type": nil, "updateStrategy": nil, "preserveExplicitNull": nil,
		"git": {"repo": nil, "directory": nil, "ref": nil},
		"oci": {"image": nil, "directory": nil},
	},
	"upstreamLock": {
		"type":    nil,
		"git":     {"repo": nil, "directory": nil, "ref": nil, "commit": nil},
		"oci":     {"image": nil, "directory": nil, "digest": nil},
		"generic": {"storeID": nil, "resourceID": nil, "resourceVersion": nil},
	},
	"info": {
		"site": nil, "emails": nil, "license": nil, "licenseFile": nil, "description": nil, "keywords": nil, "man": nil,
		"readinessGates": {"conditionType": nil},
	},
	"pipeline":  {"mutators": functionFields, "validators": functionFields},
	"inventory": {"namespace": nil, "name": nil, "inventoryID": nil, "labels": nil, "annotations": nil},
	"status":    nil,
}

var functionFields = fields{
	"image": nil, "exec": nil, "tag": nil, "configPath": nil, "configMap": nil, "name": nil,
	"selectors": selectorFields, "exclude": selectorFields,
}

var selectorFields = fields{
	"apiVersion": nil, "kind": nil, "name": nil, "namespace": nil, "labels": nil, "annotations": nil,
}

// newerFields are fields of functions that later versions of kpt have, with what to do without them.
var newerFields = map[string]string{
	"configRef":          "name the configuration's file in configPath",
	"when":               "choose resources by selectors, or remove it",
	"condition":          "choose resources by selectors, or remove it",
	"resourceFileRegexp": "choose resources by selectors, or remove it",
}

// check fails for fields below node that are not known or come twice.
func (r *kptfileReader) check(node *yaml.Node, field string, known fields) {
	if node.Kind == yaml.SequenceNode {
		for i, element := range node.Content {
			r.check(resolved(element), at(field, i), known)
		}
	}
	if node.Kind != yaml.MappingNode || known == nil {
		return
	}
	seen := make(map[string]bool, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		below, found := known[key.Value]
		name := join(field, key.Value)
		switch instead, newer := newerFields[key.Value]; {
		case seen[key.Value]:
			r.fail(name, "line %d: the field is there twice: remove one of them", key.Line)
		case !found && newer && strings.HasPrefix(field, "pipeline."):
			r.fail(name, "line %d: this field of newer versions of kpt is not supported: %s", key.Line, instead)
		case !found:
			r.fail(name, "line %d: there is no such field: use one of %s", key.Line,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		seen[key.Value] = true
		r.check(resolved(node.Content[i+1]), name, below)
	}
}
