package pipeline

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// resource is one document of a file. Its Path is relative to the root between steps.
type resource struct {
	function.Item
	// source is the document as it was read, nil for a resource that a function made.
	source *document
	// print is the fingerprint of the tree as it was read.
	print uint64
	// opaque documents keep their place in the file but are not given to functions.
	opaque bool
}

// isResourceFile says whether the file holds resources.
func isResourceFile(file string) bool {
	switch path.Ext(file) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return path.Base(file) == kptfileName
}

// read finds the packages and parses their resources.
func (r *renderer) read(ctx context.Context) error {
	if err := r.checkSize(r.files); err != nil {
		return err
	}
	if _, found := r.files[kptfileName]; !found {
		return failf(InvalidPackage, "Kptfile: the package has no Kptfile: add one with apiVersion: %s and kind: Kptfile",
			kptfileAPIVersion)
	}
	for _, file := range slices.Sorted(maps.Keys(r.files)) {
		if err := checkPath(file); err != nil {
			return err
		}
	}
	r.packages = findPackages(r.files)
	byPackage, err := r.readFiles(ctx)
	if err != nil {
		return err
	}
	children := slices.Clone(r.packages)
	slices.SortStableFunc(children, func(a, b *pkg) int { return comparePostOrder(a.dir, b.dir) })
	for _, p := range children {
		r.resources = append(r.resources, byPackage[p]...)
	}
	if len(r.resources) > r.limits.MaxResources {
		return failf(TooLarge, "the package has %d resources: at most %d are allowed", len(r.resources), r.limits.MaxResources)
	}
	for _, p := range r.packages {
		if err := r.readPipeline(p); err != nil {
			return err
		}
	}
	return nil
}

// checkPath refuses paths that could mean different files to different readers.
func checkPath(file string) error {
	switch {
	case !utf8.ValidString(file) || strings.ContainsFunc(file, unicode.IsControl):
		return failf(InvalidPackage, "%q: the path of a file must be plain UTF-8 text: rename the file", file)
	case file == "." || path.Clean(file) != file || path.IsAbs(file) || file == ".." || strings.HasPrefix(file, "../"):
		return failf(InvalidPackage, "%q: the path of a file must be relative, without empty segments, . and ..: rename the file", file)
	}
	return nil
}

func (r *renderer) readFiles(ctx context.Context) (map[*pkg][]*resource, error) {
	byPackage := make(map[*pkg][]*resource, len(r.packages))
	r.original = make(map[string][]*resource, len(r.files))
	files := make([]string, 0, len(r.files))
	for file := range r.files {
		if isResourceFile(file) {
			files = append(files, file)
		}
	}
	slices.SortFunc(files, comparePaths)
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		owner := r.ownerOf(file)
		if owner.ignores(file) {
			continue
		}
		resources, err := parseFile(file, r.files[file])
		if err != nil {
			return nil, err
		}
		r.original[file] = resources
		byPackage[owner] = append(byPackage[owner], resources...)
	}
	return byPackage, nil
}

func parseFile(file, content string) ([]*resource, error) {
	documents, err := splitDocuments(content)
	if err != nil {
		return nil, failf(InvalidPackage, "%s: %s: correct the file, or list it in %s", file, err, ignoreName)
	}
	resources := make([]*resource, 0, len(documents))
	for i, document := range documents {
		resource := &resource{
			Item:   function.Item{Object: yaml.NewRNode(document.node), Path: file, Index: i},
			source: document,
			print:  function.Fingerprint(document.node),
		}
		document.node = nil
		resource.opaque = isKustomization(file) && krmProblem(resource.Object.YNode()) != ""
		resources = append(resources, resource)
	}
	return resources, nil
}

func (r *renderer) readPipeline(p *pkg) error {
	file := p.file(kptfileName)
	documents := r.original[file]
	if len(documents) != 1 {
		return failf(InvalidPackage, "%s: it has %d YAML documents: it must have exactly one", file, len(documents))
	}
	read, err := readKptfile(file, documents[0].Object.YNode())
	if err != nil {
		return err
	}
	p.kptfile = read
	for _, functions := range [][]functionRef{read.mutators, read.validators} {
		for i := range functions {
			if _, err := r.config(p, &functions[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *renderer) checkSize(files map[string]string) error {
	size := 0
	for file, content := range files {
		size += len(file) + len(content)
	}
	if size > r.limits.MaxBytes {
		return failf(TooLarge, "the package has %d bytes: at most %d are allowed", size, r.limits.MaxBytes)
	}
	return nil
}

// krmProblem says what a resource lacks, empty when it is complete.
func krmProblem(root *yaml.Node) string {
	switch {
	case text(root, "apiVersion") == "":
		return "apiVersion"
	case text(root, "kind") == "":
		return "kind"
	case text(child(root, "metadata"), "name") == "":
		return "metadata.name"
	}
	return ""
}

// isKustomization tells the files that kustomize reads, which need no name and often no kind.
func isKustomization(file string) bool {
	name := strings.ToLower(path.Base(file))
	return name == "kustomization.yaml" || name == "kustomization.yml"
}
