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
	dir string
	// level is how many packages contain it.
	level   int
	kptfile *kptfile
	// documents are those of the Kptfile.
	documents []*resource
	ignored   ignoreRules
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

// ownerOf returns the innermost package that contains the file.
func (r *renderer) ownerOf(file string) *pkg {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if owner := r.byDir[dir]; owner != nil {
			return owner
		}
	}
	return r.packages[0]
}

// ignores says whether the package's .krmignore excludes the file or one of the folders above it. It does not reach into the
// packages below.
func (p *pkg) ignores(file string) bool {
	if len(p.ignored) == 0 {
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
	if isTrue(r.packages[0].kptfile.annotations[BreadthFirstAnnotation]) {
		slices.SortStableFunc(ordered, func(a, b *pkg) int { return cmp.Compare(a.level, b.level) })
		return ordered
	}
	slices.SortStableFunc(ordered, func(a, b *pkg) int { return comparePostOrder(a.dir, b.dir) })
	return ordered
}

// isTrue reads the value of an annotation as kpt does.
func isTrue(value string) bool { return strings.EqualFold(value, "true") }

// comparePaths orders as a walk of the tree does: segment by segment.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
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
