package pipeline

import (
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const kptfileAPIVersion = "kpt.dev/v1"

// kptfile is what a render needs of a Kptfile.
type kptfile struct {
	annotations          map[string]string
	mutators, validators []functionRef
}

// functionRef is one entry of a pipeline.
type functionRef struct {
	// field is where the entry stands, for example pipeline.mutators[0].
	field string
	// image includes what the field tag says.
	image, exec, name  string
	configPath         string
	configMap          []configEntry
	selectors, exclude []selector
}

// configEntry is one field of a function's configMap.
type configEntry struct{ name, text string }

// id is how messages name the function.
func (f *functionRef) id() string {
	switch {
	case f.name != "":
		return f.name
	case f.image != "":
		return f.image
	}
	return f.exec
}

// kptfileReader turns the tree of a Kptfile into a kptfile and keeps the first mistake.
type kptfileReader struct {
	file    string
	failure *Failure
}

func readKptfile(file string, root *yaml.Node) (*kptfile, error) {
	r := &kptfileReader{file: file}
	k := &kptfile{}
	r.checkKind(root)
	r.check(root, "", kptfileFields)
	if metadata := r.mapping(root, "", "metadata"); metadata != nil {
		k.annotations = r.strings(metadata, "metadata", "annotations")
	}
	if pipeline := r.mapping(root, "", "pipeline"); pipeline != nil {
		k.mutators = r.functions(pipeline, "mutators")
		k.validators = r.functions(pipeline, "validators")
	}
	if r.failure != nil {
		return nil, r.failure
	}
	return k, nil
}

// fail keeps the first mistake, with the field it is in and the way out.
func (r *kptfileReader) fail(field, format string, args ...any) {
	if r.failure == nil {
		r.failure = failf(InvalidPackage, "%s: %s: %s", r.file, field, fmt.Sprintf(format, args...))
	}
}

func (r *kptfileReader) checkKind(root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		r.fail("apiVersion", "the file must be a mapping with apiVersion: %s and kind: Kptfile", kptfileAPIVersion)
		return
	}
	apiVersion, kind := r.text(root, "", "apiVersion"), r.text(root, "", "kind")
	switch {
	case kind != "Kptfile":
		r.fail("kind", "it is %q: set it to Kptfile", kind)
	case strings.HasPrefix(apiVersion, "kpt.dev/v1alpha"):
		r.fail("apiVersion", "%q is an old version of the Kptfile schema: migrate the package to %s, for example with the "+
			"function fix of kpt's catalog", apiVersion, kptfileAPIVersion)
	case apiVersion != kptfileAPIVersion:
		r.fail("apiVersion", "it is %q: set it to %s", apiVersion, kptfileAPIVersion)
	}
}

func (r *kptfileReader) functions(pipeline *yaml.Node, list string) []functionRef {
	var functions []functionRef
	field := "pipeline." + list
	for i, node := range r.list(pipeline, "pipeline", list) {
		functions = append(functions, r.function(resolved(node), at(field, i)))
	}
	return functions
}

func (r *kptfileReader) function(node *yaml.Node, field string) functionRef {
	f := functionRef{field: field}
	if node.Kind != yaml.MappingNode {
		r.fail(field, "it must be a mapping with the field image")
		return f
	}
	f.image = r.text(node, field, "image")
	f.exec = r.text(node, field, "exec")
	f.name = r.text(node, field, "name")
	f.configPath = r.text(node, field, "configPath")
	f.configMap = r.configMap(node, field)
	f.selectors = r.selectors(node, field, "selectors")
	f.exclude = r.selectors(node, field, "exclude")
	switch {
	case f.image == "" && f.exec == "":
		r.fail(field, "the function has no image: set image")
	case f.image != "" && f.exec != "":
		r.fail(field, "image and exec exclude each other: remove exec")
	case f.configPath != "" && f.configMap != nil:
		r.fail(field, "configMap and configPath exclude each other: remove one of them")
	case f.configPath != "":
		r.checkConfigPath(&f)
	}
	switch tag := r.text(node, field, "tag"); {
	case tag == "":
	case f.image == "":
		r.fail(field+".tag", "a tag belongs to an image: set image, or remove tag")
	case !isTag(tag) && !isVersionRange(tag):
		r.fail(field+".tag", "%q is neither a tag nor a range of versions such as ~1.2 or >=1.0 <2: correct it", tag)
	default:
		f.image = withTag(f.image, tag)
	}
	return f
}

// configMap reads the configuration in place, nil when there is none. Whatever its values look like, they are strings.
func (r *kptfileReader) configMap(node *yaml.Node, field string) []configEntry {
	mapping := r.mapping(node, field, "configMap")
	if mapping == nil || len(mapping.Content) == 0 {
		return nil
	}
	texts := r.strings(node, field, "configMap")
	entries := make([]configEntry, 0, len(texts))
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name := mapping.Content[i].Value
		if _, left := texts[name]; !left {
			r.fail(field+".configMap."+name, "the field is there twice: remove one of them")
		}
		entries = append(entries, configEntry{name, texts[name]})
		delete(texts, name)
	}
	return entries
}

func (r *kptfileReader) checkConfigPath(f *functionRef) {
	field := f.field + ".configPath"
	switch clean := path.Clean(f.configPath); {
	case path.IsAbs(f.configPath):
		r.fail(field, "%q must be relative to the package", f.configPath)
	case clean == ".." || strings.HasPrefix(clean, "../"):
		r.fail(field, "%q points outside of the package: move the file into the package", f.configPath)
	case path.Base(clean) == kptfileName:
		r.fail(field, "%q is a Kptfile: use a file with the function's configuration", f.configPath)
	default:
		f.configPath = clean
	}
}

func (r *kptfileReader) selectors(node *yaml.Node, field, list string) []selector {
	var selectors []selector
	for i, element := range r.list(node, field, list) {
		element, at := resolved(element), at(join(field, list), i)
		if element.Kind != yaml.MappingNode {
			r.fail(at, "it must be a mapping")
			continue
		}
		selectors = append(selectors, selector{
			apiVersion:  r.text(element, at, "apiVersion"),
			kind:        r.text(element, at, "kind"),
			name:        r.text(element, at, "name"),
			namespace:   r.text(element, at, "namespace"),
			labels:      r.strings(element, at, "labels"),
			annotations: r.strings(element, at, "annotations"),
		})
	}
	return selectors
}

// value returns the value under key, nil when it is missing or null.
func value(node *yaml.Node, key string) *yaml.Node {
	found := child(node, key)
	if found == nil {
		return nil
	}
	if found = resolved(found); found.ShortTag() == yaml.NodeTagNull {
		return nil
	}
	return found
}

// resolved is what an alias stands for, and any other node itself.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func join(field, key string) string { return strings.TrimPrefix(field+"."+key, ".") }

func (r *kptfileReader) text(node *yaml.Node, field, key string) string {
	found := value(node, key)
	if found == nil {
		return ""
	}
	if found.Kind != yaml.ScalarNode {
		r.fail(join(field, key), "it must be a string")
		return ""
	}
	return found.Value
}

func (r *kptfileReader) mapping(node *yaml.Node, field, key string) *yaml.Node {
	found := value(node, key)
	if found != nil && found.Kind != yaml.MappingNode {
		r.fail(join(field, key), "it must be a mapping")
		return nil
	}
	return found
}

func (r *kptfileReader) list(node *yaml.Node, field, key string) []*yaml.Node {
	found := value(node, key)
	if found == nil {
		return nil
	}
	if found.Kind != yaml.SequenceNode {
		r.fail(join(field, key), "it must be a list")
		return nil
	}
	return found.Content
}

func (r *kptfileReader) strings(node *yaml.Node, field, key string) map[string]string {
	mapping := r.mapping(node, field, key)
	if mapping == nil {
		return nil
	}
	texts := make(map[string]string, len(mapping.Content)/2)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, text := mapping.Content[i], resolved(mapping.Content[i+1])
		switch {
		case text.Kind != yaml.ScalarNode:
			r.fail(join(join(field, key), name.Value), "it must be a string")
		case text.ShortTag() == yaml.NodeTagNull:
			texts[name.Value] = ""
		default:
			texts[name.Value] = text.Value
		}
	}
	return texts
}
