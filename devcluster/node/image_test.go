package node

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseImage(t *testing.T) {
	cases := map[string]struct {
		line, name, problem string
		image               Image
	}{
		"a program":                          {line: "a=/bin/a", name: "a", image: Image{Program: "/bin/a", Args: []string{}}},
		"a name with registry, tag and port": {line: "r.example:5000/a/b:v1=/bin/a", name: "r.example:5000/a/b:v1", image: Image{Program: "/bin/a", Args: []string{}}},
		"default arguments":                  {line: "a=/bin/a  x --y=z", name: "a", image: Image{Program: "/bin/a", Args: []string{"x", "--y=z"}}},
		"a user":                             {line: "a=7@/bin/a", name: "a", image: Image{Program: "/bin/a", Args: []string{}, UID: 7, GID: 7}},
		"a user and a group":                 {line: "a=7:8@/bin/a", name: "a", image: Image{Program: "/bin/a", Args: []string{}, UID: 7, GID: 8}},
		"a path with an at sign":             {line: "a=/bin/a@b", name: "a", image: Image{Program: "/bin/a@b", Args: []string{}}},
		"no program":                         {line: "a=", problem: "is not of the form"},
		"no name":                            {line: "=/bin/a", problem: "is not of the form"},
		"a relative path":                    {line: "a=bin/a", problem: "must be an absolute path"},
		"a user by name":                     {line: "a=me@/bin/a", problem: "is not UID or UID:GID"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			parsed, image, err := ParseImage(c.line)
			if c.problem != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.problem)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed).To(Equal(c.name))
			g.Expect(image).To(Equal(c.image))
		})
	}
}

func TestLookUpImage(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	program, plain, file := filepath.Join(dir, "program"), filepath.Join(dir, "plain"), filepath.Join(dir, "images")
	g.Expect(os.WriteFile(program, nil, 0o755)).To(Succeed())
	g.Expect(os.WriteFile(plain, nil, 0o644)).To(Succeed())
	_, err := lookUpImage(file, "a")
	g.Expect(err).To(MatchError(ContainSubstring("no local program stands for this image")), "without a file")

	lines := "# a comment\n\na=" + plain + "\na=" + program + " later\ntagged:latest=" + program + "\nbad=" + plain + "\ngone=" + dir + "/gone\n"
	g.Expect(os.WriteFile(file, []byte(lines), 0o644)).To(Succeed())
	image, err := lookUpImage(file, "a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(image.Args).To(Equal([]string{"later"}), "the later line wins")
	for _, name := range []string{"a:latest", "tagged", "tagged:latest"} {
		_, err = lookUpImage(file, name)
		g.Expect(err).NotTo(HaveOccurred(), name)
	}
	for _, name := range []string{"a:v1", "b", "bad", "gone"} {
		_, err = lookUpImage(file, name)
		g.Expect(err).To(HaveOccurred(), name)
	}
}
