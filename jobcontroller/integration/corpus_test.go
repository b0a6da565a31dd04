package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/kustomize/kyaml/kio"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// corpus is the folder of real packages with what the reference implementation makes of them.
func corpus(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("KILN_CORPUS")
	if dir == "" {
		dir = filepath.Join(repository, "../shared/corpus")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the corpus of real packages is not here: %v", err)
	}
	return dir
}

func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(text)
		return err
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return files
}

func TestRealPackagesComeOutAsTheReferenceRendersThem(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join(corpus(t), "nephio-packages", "*"))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cases).NotTo(BeEmpty())
	ns := namespace(t)
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			g := NewWithT(t)
			exit, err := os.ReadFile(filepath.Join(dir, "exit"))
			g.Expect(err).NotTo(HaveOccurred())
			rev := create(t, revision(ns, filepath.Base(dir), readTree(t, filepath.Join(dir, "in"))))
			var done *kiln.PackageRevision
			if strings.TrimSpace(string(exit)) == "0" {
				done = waitRendered(t, rev)
			} else {
				done = waitFor(t, rev, ContainElement(HavePrefix("Rendered=False/")))
				t.Logf("failed as it should: %s", messageOf(done, kiln.ConditionRendered))
			}
			expectSameByValue(t, files(done), readTree(t, filepath.Join(dir, "want")))
		})
	}
}

// expectSameByValue compares as the corpus asks: the same files, every YAML document equal by value and in the same
// order, the root Kptfile's status aside.
func expectSameByValue(t *testing.T, got, want map[string]string) {
	t.Helper()
	g := NewWithT(t)
	for path := range got {
		g.Expect(want).To(HaveKey(path), "a file that should not be there")
	}
	for path, text := range want {
		g.Expect(got).To(HaveKey(path), "a file that should be there")
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".json", "":
			g.Expect(documents(t, path, got[path])).To(Equal(documents(t, path, text)), path)
		default:
			g.Expect(got[path]).To(Equal(text), path)
		}
	}
}

func documents(t *testing.T, path, text string) []map[string]any {
	t.Helper()
	if filepath.Ext(path) == "" && filepath.Base(path) != "Kptfile" {
		return []map[string]any{{"text": text}}
	}
	nodes, err := kio.FromBytes([]byte(text))
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), path)
	var values []map[string]any
	for _, node := range nodes {
		value, err := node.Map()
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), path)
		if path == "Kptfile" {
			delete(value, "status")
		}
		values = append(values, value)
	}
	return values
}
