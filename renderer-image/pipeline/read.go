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
	// changed says, as files are written, that the tree is not the one that was read.
	changed bool
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
	r.byDir = make(map[string]*pkg, len(r.packages))
	for _, p := range r.packages {
		if p.dir != "" {
			p.level = r.ownerOf(p.dir).level + 1
		}
		if p.level >= r.limits.MaxDepth {
			return failf(TooLarge, "%s: the package is nested in %d others: packages may be nested %d deep: move it up",
				p.file(kptfileName), p.level, r.limits.MaxDepth)
		}
		r.byDir[p.dir] = p
	}
	byPackage, err := r.readFiles(ctx)
	if err != nil {
		return err
	}
	for _, p := range r.packages {
		r.resources = append(r.resources, byPackage[p]...)
	}
	if len(r.resources) > r.limits.MaxResources {
		return failf(TooLarge, "the package has %d resources: at most %d are allowed: split it", len(r.resources), r.limits.MaxResources)
	}
	return r.readPipelines()
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
		isKptfile, ignored := file == owner.file(kptfileName), owner.ignores(file)
		if ignored && !isKptfile {
			continue
		}
		resources, err := parseFile(file, r.files[file])
		if err != nil {
			return nil, err
		}
		if isKptfile {
			owner.documents = resources
		}
		if ignored {
			continue // Its pipeline counts all the same.
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
		resources = append(resources, resource)
	}
	return resources, nil
}

// readPipelines reads what the Kptfiles ask for, before anything runs.
func (r *renderer) readPipelines() error {
	count := 0
	for _, p := range r.packages {
		file := p.file(kptfileName)
		if len(p.documents) != 1 {
			return failf(InvalidPackage, "%s: it has %d YAML documents: it must have exactly one", file, len(p.documents))
		}
		read, err := readKptfile(file, p.documents[0].Object.YNode())
		if err != nil {
			return err
		}
		p.kptfile = read
		count += len(read.mutators) + len(read.validators)
	}
	if count > r.limits.MaxFunctions {
		return failf(TooLarge, "the pipelines of the package have %d functions: at most %d are allowed: split the package",
			count, r.limits.MaxFunctions)
	}
	for _, p := range r.packages {
		for _, functions := range [][]functionRef{p.kptfile.mutators, p.kptfile.validators} {
			for i := range functions {
				if _, err := r.config(p, &functions[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkKptfiles refuses Kptfiles that functions left in a state in which they could not be rendered again.
func (r *renderer) checkKptfiles() error {
	found := make(map[string]bool, len(r.packages))
	for _, resource := range r.resources {
		file := resource.Path
		if path.Base(file) != kptfileName {
			continue
		}
		_, err := readKptfile(file, resource.Object.YNode())
		switch {
		case found[file]:
			return failf(InvalidOutput, "%s: the functions leave more than one YAML document in it: move one of them", file)
		case err != nil:
			return failf(InvalidOutput, "the functions leave a Kptfile that cannot be read again: %s; or exclude it from them by kind", err)
		}
		found[file] = true
	}
	return nil
}

func (r *renderer) checkSize(files map[string]string) error {
	size := 0
	for file, content := range files {
		size += len(file) + len(content)
	}
	switch {
	case len(files) > r.limits.MaxFiles:
		return failf(TooLarge, "the package has %d files: at most %d are allowed: split it", len(files), r.limits.MaxFiles)
	case size > r.limits.MaxBytes:
		return failf(TooLarge, "the package has %d bytes: at most %d are allowed: split it", size, r.limits.MaxBytes)
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

// problem is what the resource lacks, empty when it is complete. Kustomizations may lack anything.
func problem(file string, root *yaml.Node) string {
	if isKustomization(file, root) {
		return ""
	}
	return krmProblem(root)
}

// isKustomization tells what kustomize reads: by the file's name, by the group, or by the kind where no group is given.
func isKustomization(file string, root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return false
	}
	name, apiVersion := path.Base(file), text(root, "apiVersion")
	return name == "kustomization.yaml" || name == "kustomization.yml" ||
		strings.HasPrefix(apiVersion, "kustomize.config.k8s.io") ||
		apiVersion == "" && text(root, "kind") == "Kustomization"
}
