package function

import (
	"maps"
	"slices"
	"strings"
)

// catalogPrefixes are the registries whose functions the built-ins stand for. The last segment of an image below one of
// them, or of a bare name, selects the built-in; its tag or digest does not matter.
var catalogPrefixes = []string{
	"gcr.io/kpt-fn/",
	"ghcr.io/kptdev/krm-functions-catalog/",
}

// Set says which function an image means. The zero value knows none. It is immutable and safe for concurrent use.
type Set struct {
	byName  map[string]Func
	byImage map[string]string
}

// Builtins returns the set of all built-in functions under their catalog names.
func Builtins() Set {
	return Set{byName: map[string]Func{
		"apply-replacements":            ApplyReplacements,
		"apply-setters":                 ApplySetters,
		"create-setters":                CreateSetters,
		"ensure-name-substring":         EnsureNameSubstring,
		"kubeconform":                   Kubeconform,
		"remove-local-config-resources": RemoveLocalConfigResources,
		"set-name-prefix":               SetNamePrefix,
		"upsert-resource":               UpsertResource,
		"search-replace":                SearchReplace,
		"set-annotations":               SetAnnotations,
		"set-image":                     SetImage,
		"set-labels":                    SetLabels,
		"set-namespace":                 SetNamespace,
		"starlark":                      Starlark,
	}}
}

// With returns a copy of the set in which name means function.
func (s Set) With(name string, function Func) Set {
	byName := maps.Clone(s.byName)
	if byName == nil {
		byName = map[string]Func{}
	}
	byName[name] = function
	return Set{byName: byName, byImage: s.byImage}
}

// WithImages returns a copy of the set that runs exactly the given images, written as in Kptfiles with name and tag, by
// the built-ins they map to, and refuses all others. Nothing is then substituted silently.
func (s Set) WithImages(images map[string]string) Set {
	byImage := maps.Clone(images)
	if byImage == nil {
		byImage = map[string]string{}
	}
	return Set{byName: s.byName, byImage: byImage}
}

// Lookup returns the function that image means.
func (s Set) Lookup(image string) (Func, bool) {
	name, known := s.byImage[image]
	if s.byImage == nil {
		name, known = catalogName(image)
	}
	if !known {
		return nil, false
	}
	function, found := s.byName[name]
	return function, found
}

// Names returns the sorted names of the functions in the set.
func (s Set) Names() []string {
	return slices.Sorted(maps.Keys(s.byName))
}

// catalogName returns the catalog name in image, without tag and digest.
func catalogName(image string) (string, bool) {
	for _, prefix := range catalogPrefixes {
		if rest, found := strings.CutPrefix(image, prefix); found {
			image = rest
			break
		}
	}
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(image, ":")
	return name, name != "" && !strings.Contains(name, "/")
}
