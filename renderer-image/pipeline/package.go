package pipeline

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

const (
	kptfileName = "Kptfile"
	ignoreName  = ".krmignore"
)

// pkg is a folder with a Kptfile.
type pkg struct {
	// dir is the slash path of the folder, empty for the root.
	dir     string
	kptfile *kptfile
	ignored ignoreRules
}

func (p *pkg) label() string {
	if p.dir == "" {
		return "."
	}
	return p.dir
}

// file is the slash path of a file of the package, from the root.
func (p *pkg) file(name string) string { return path.Join(p.dir, name) }

// contains says whether the file is in the folder of p or below.
func (p *pkg) contains(file string) bool {
	return p.dir == "" || strings.HasPrefix(file, p.dir+"/")
}

// relative is the path of a contained file as the package's functions see it.
func (p *pkg) relative(file string) string {
	if p.dir == "" {
		return file
	}
	return strings.TrimPrefix(file, p.dir+"/")
}

// findPackages returns the packages of a tree, parents before children and siblings by name.
func findPackages(files map[string]string) []*pkg {
	var packages []*pkg
	for file := range files {
		if path.Base(file) != kptfileName {
			continue
		}
		p := &pkg{dir: strings.TrimSuffix(strings.TrimSuffix(file, kptfileName), "/")}
		if rules, found := files[p.file(ignoreName)]; found {
			p.ignored = parseIgnoreRules(rules)
		}
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b *pkg) int { return comparePaths(a.dir, b.dir) })
	return packages
}

func (r *renderer) root() *pkg {
	if len(r.packages) == 0 || r.packages[0].dir != "" {
		return nil
	}
	return r.packages[0]
}

// ownerOf returns the innermost package that contains the file.
func (r *renderer) ownerOf(file string) *pkg {
	owner := r.packages[0]
	for _, p := range r.packages[1:] {
		if p.contains(file) && len(p.dir) > len(owner.dir) {
			owner = p
		}
	}
	return owner
}

// ignores says whether the package's .krmignore excludes the file or one of the folders above it. It does not reach into the
// packages below.
func (p *pkg) ignores(file string) bool {
	if len(p.ignored) == 0 || path.Base(file) == kptfileName {
		return false
	}
	segments := strings.Split(p.relative(file), "/")
	for i := range segments {
		if p.ignored.match(segments[:i+1], i < len(segments)-1) {
			return true
		}
	}
	return false
}

// order returns the packages in the order they are rendered: children first, or by level when the root Kptfile asks for it.
func (r *renderer) order() []*pkg {
	ordered := slices.Clone(r.packages)
	if root := r.root(); root != nil && root.kptfile.annotations[BreadthFirstAnnotation] == "true" {
		slices.SortStableFunc(ordered, func(a, b *pkg) int { return cmp.Compare(r.level(a), r.level(b)) })
		return ordered
	}
	slices.SortStableFunc(ordered, func(a, b *pkg) int { return comparePostOrder(a.dir, b.dir) })
	return ordered
}

// level is how many packages contain p.
func (r *renderer) level(p *pkg) int {
	level := 0
	for _, other := range r.packages {
		if other != p && other.contains(p.file(kptfileName)) {
			level++
		}
	}
	return level
}

// comparePaths orders as a walk of the tree does: segment by segment.
func comparePaths(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(len(a), len(b))
	}
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// comparePostOrder is comparePaths with every folder after what it contains.
func comparePostOrder(a, b string) int {
	switch {
	case a == b:
		return 0
	case b == "" || strings.HasPrefix(a, b+"/"):
		return -1
	case a == "" || strings.HasPrefix(b, a+"/"):
		return 1
	}
	return comparePaths(a, b)
}
