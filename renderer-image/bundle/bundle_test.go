package bundle

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/renderer-image/kptfile"
)

var publisher = Publisher{Job: Job{Namespace: "team", Name: "web-1", UID: "job-uid"}, Pod: "web-1-abcde", UID: "pod-uid"}

func contents() map[string]string {
	return map[string]string{
		"Kptfile":      "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n",
		"deploy/a.yml": "a: 1\n",
		"empty":        "",
		"gone.yaml":    "b: 2\n",
	}
}

// noise is text that does not compress well, the same at every run.
func noise(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte(' ' + random.IntN(95))
	}
	return string(text)
}

func TestDigest(t *testing.T) {
	g := NewWithT(t)
	digest := Digest(contents())
	g.Expect(digest).To(MatchRegexp(`^[0-9a-f]{64}$`))

	with := contents()
	var err error
	with["Kptfile"], err = kptfile.SetConditions(with["Kptfile"], []kptfile.Condition{{Type: "Rendered", Status: "True"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Digest(with)).To(Equal(digest), "the root Kptfile's status does not count")

	for name, change := range map[string]func(map[string]string){
		"another text":                        func(f map[string]string) { f["empty"] = "x" },
		"another path":                        func(f map[string]string) { delete(f, "empty"); f["Empty"] = "" },
		"one file less":                       func(f map[string]string) { delete(f, "empty") },
		"text that moved to another file":     func(f map[string]string) { f["deploy/a.yml"] = "a: "; f["empty"] = "1\n" },
		"another Kptfile":                     func(f map[string]string) { f["Kptfile"] += "info: {}\n" },
		"a status of a package's sub-package": func(f map[string]string) { f["deploy/Kptfile"] = "status: {}\n" },
		"a Kptfile that cannot be read":       func(f map[string]string) { f["Kptfile"] = "a: [" },
	} {
		changed := contents()
		change(changed)
		g.Expect(Digest(changed)).NotTo(Equal(digest), name)
	}
}

func TestASnapshotComesBackAsItWas(t *testing.T) {
	g := NewWithT(t)
	configMap, err := SnapshotConfigMap(publisher.Job, Digest(contents()), contents())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(configMap.Name).To(Equal("web-1"))
	g.Expect(*configMap.Immutable).To(BeTrue())
	g.Expect(UnpackSnapshot(configMap.BinaryData[SnapshotKey], Digest(contents()), DefaultLimits)).To(Equal(contents()))

	again, err := SnapshotConfigMap(publisher.Job, Digest(contents()), contents())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.BinaryData).To(Equal(configMap.BinaryData), "equal contents give equal bytes")

	_, err = UnpackSnapshot(configMap.BinaryData[SnapshotKey], strings.Repeat("0", 64), DefaultLimits)
	g.Expect(err).To(MatchError(ErrDamaged))
}

func TestAMiBOfPrintableNoiseFitsASnapshot(t *testing.T) {
	files := map[string]string{"noise": noise(1 << 20)}
	_, err := SnapshotConfigMap(publisher.Job, Digest(files), files)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func result(output map[string]string) *Result {
	r := &Result{Succeeded: true, Steps: []Step{{Package: ".", Phase: "mutate", Image: "set-labels", Results: []StepResult{{Message: "done"}}}}}
	r.Diff(contents(), output)
	return r
}

func rendered() map[string]string {
	output := contents()
	output["deploy/a.yml"] = "a: 2\n"
	output["new/b.yaml"] = "b: 1\n"
	delete(output, "gone.yaml")
	return output
}

// published splits a result's ConfigMaps into its chunks and its index.
func published(t *testing.T, r *Result) (*corev1.ConfigMap, []*corev1.ConfigMap) {
	t.Helper()
	all, err := ResultConfigMaps(publisher, r)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return all[len(all)-1], all[:len(all)-1]
}

func TestAResultComesBackAsItWas(t *testing.T) {
	g := NewWithT(t)
	index, chunks := published(t, result(rendered()))
	g.Expect(chunks).To(BeEmpty(), "a small result is published by one write")
	r, err := ResultOf(index, chunks, DefaultLimits)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.Changed).To(HaveLen(2))
	g.Expect(r.Deleted).To(Equal([]string{"gone.yaml"}))
	g.Expect(r.Steps).To(Equal(result(rendered()).Steps))
	g.Expect(r.Apply(contents())).To(Equal(rendered()))
}

func TestALargeResultComesInChunks(t *testing.T) {
	g := NewWithT(t)
	output := rendered()
	output["noise"] = noise(2 << 20)
	index, chunks := published(t, result(output))
	g.Expect(len(chunks)).To(BeNumerically(">", 2))
	r, err := ResultOf(index, chunks, DefaultLimits)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.Apply(contents())).To(Equal(output))

	for name, tampered := range map[string][]*corev1.ConfigMap{
		"a missing chunk":   chunks[1:],
		"an extra chunk":    append(append([]*corev1.ConfigMap{}, chunks...), chunks[0]),
		"swapped chunks":    append([]*corev1.ConfigMap{chunks[1], chunks[0]}, chunks[2:]...),
		"a damaged chunk":   append([]*corev1.ConfigMap{changed(chunks[0], func(c *corev1.ConfigMap) { c.BinaryData[chunkKey][7] ^= 1 })}, chunks[1:]...),
		"a stranger's":      append([]*corev1.ConfigMap{changed(chunks[0], func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = "x" })}, chunks[1:]...),
		"a relabelled one":  append([]*corev1.ConfigMap{changed(chunks[0], func(c *corev1.ConfigMap) { c.Labels["kiln.dev/pod-uid"] = "x" })}, chunks[1:]...),
		"one to be changed": append([]*corev1.ConfigMap{changed(chunks[0], func(c *corev1.ConfigMap) { c.Immutable = nil })}, chunks[1:]...),
	} {
		_, err := ResultOf(index, tampered, DefaultLimits)
		g.Expect(err).To(MatchError(ErrDamaged), name)
	}
}

func changed(configMap *corev1.ConfigMap, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	c := configMap.DeepCopy()
	change(c)
	return c
}

func TestAnIndexThatIsNotTheRenderersIsRefused(t *testing.T) {
	index, _ := published(t, result(rendered()))
	edited := func(change func(*Index)) func(*corev1.ConfigMap) {
		return func(c *corev1.ConfigMap) {
			var x Index
			_ = json.Unmarshal(c.BinaryData[indexKey], &x)
			change(&x)
			c.BinaryData[indexKey], _ = json.Marshal(x)
		}
	}
	for name, change := range map[string]func(*corev1.ConfigMap){
		"no index":                 func(c *corev1.ConfigMap) { delete(c.BinaryData, indexKey) },
		"another version":          edited(func(x *Index) { x.Version = "v2" }),
		"another pod's name":       func(c *corev1.ConfigMap) { c.Name = "kiln-result-other" },
		"another owner":            func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = "other" },
		"no owner":                 func(c *corev1.ConfigMap) { c.OwnerReferences = nil },
		"another component":        func(c *corev1.ConfigMap) { c.Labels["kiln.dev/component"] = "snapshot" },
		"a changed archive":        func(c *corev1.ConfigMap) { c.BinaryData[chunkKey][9] ^= 1 },
		"a wrong output digest":    edited(func(x *Index) { x.OutputDigest = strings.Repeat("0", 64) }),
		"a wrong input digest":     edited(func(x *Index) { x.InputDigest = strings.Repeat("0", 64) }),
		"a chunk that is not here": edited(func(x *Index) { x.Chunks = []Chunk{{Name: "kiln-result-pod-uid-0"}} }),
		"a chunk of another":       edited(func(x *Index) { x.Chunks = []Chunk{{Name: "kube-root-ca.crt"}} }),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ResultOf(changed(index, change), nil, DefaultLimits)
			NewWithT(t).Expect(err).To(MatchError(ErrDamaged))
		})
	}
}

func TestAResultThatLeadsElsewhereIsRefused(t *testing.T) {
	g := NewWithT(t)
	r := result(rendered())
	r.OutputDigest = strings.Repeat("0", 64)
	_, err := r.Apply(contents())
	g.Expect(err).To(MatchError(ErrDamaged))

	r = result(rendered())
	r.Deleted = append(r.Deleted, "never-there")
	_, err = r.Apply(contents())
	g.Expect(err).To(MatchError(ErrDamaged))

	_, err = result(rendered()).Apply(rendered())
	g.Expect(err).To(MatchError(ContainSubstring("digest")), "another input")
}

func TestFilesThatCannotBeInOneFolderAreFound(t *testing.T) {
	g := NewWithT(t)
	g.Expect(CheckTree(rendered())).To(Succeed())
	g.Expect(CheckTree(map[string]string{"a/b": "", "a/b.yaml": "", "a-b": ""})).To(Succeed())
	g.Expect(CheckTree(map[string]string{"a/b/c/d": "", "a/b": ""})).To(MatchError(ContainSubstring(`"a/b" is a file`)))
}

// archive packs entries as an attacker would.
func archive(entries ...*tar.Header) []byte {
	var out bytes.Buffer
	compressor, _ := zstd.NewWriter(&out)
	w := tar.NewWriter(compressor)
	for _, e := range entries {
		_ = w.WriteHeader(e)
		_, _ = w.Write(make([]byte, e.Size))
	}
	_ = w.Close()
	_ = compressor.Close()
	return out.Bytes()
}

func file(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}
}

func TestHostileArchivesAreRefused(t *testing.T) {
	many := make([]*tar.Header, DefaultLimits.MaxFiles+1)
	for i := range many {
		many[i] = file(fmt.Sprint(i), 0)
	}
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"an absolute path":          {archive(file("/etc/passwd", 1)), ErrDamaged},
		"a path that leaves":        {archive(file("a/../../b", 1)), ErrDamaged},
		"an empty segment":          {archive(file("a//b", 1)), ErrDamaged},
		"a file twice":              {archive(file("a", 1), file("a", 1)), ErrDamaged},
		"a symbolic link":           {archive(&tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd"}), ErrDamaged},
		"a folder":                  {archive(&tar.Header{Typeflag: tar.TypeDir, Name: "a/"}), ErrDamaged},
		"a long path":               {archive(file(strings.Repeat("a", DefaultLimits.MaxPathBytes+1), 0)), ErrTooLarge},
		"too many files":            {archive(many...), ErrTooLarge},
		"a decompression bomb":      {archive(file("a", DefaultLimits.MaxTextBytes+1)), ErrTooLarge},
		"many bombs":                {archive(file("a", DefaultLimits.MaxTextBytes), file("b", 1)), ErrTooLarge},
		"too large when compressed": {make([]byte, DefaultLimits.MaxCompressedBytes+1), ErrTooLarge},
		"no archive":                {[]byte("no archive"), ErrDamaged},
		"a cut archive":             {archive(file("a", 100000))[:30], ErrDamaged},
		"nothing":                   {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := unpack(test.data, DefaultLimits)
			if test.want == nil {
				NewWithT(t).Expect(files).To(BeEmpty())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(test.want))
		})
	}
}

func FuzzUnpackSnapshot(f *testing.F) {
	data, _ := pack(contents())
	f.Add(data)
	f.Add(archive(file("a", 10)))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := unpack(data, DefaultLimits)
		if err != nil {
			return
		}
		for path := range files {
			if CheckPath(path) != nil {
				t.Fatalf("path %q came through", path)
			}
		}
	})
}

func FuzzUnpackResult(f *testing.F) {
	data, _ := packResult(result(rendered()))
	f.Add(data)
	f.Fuzz(func(_ *testing.T, data []byte) {
		if r, err := unpackResult(data, DefaultLimits); err == nil {
			_, _ = r.Apply(contents())
		}
	})
}

func FuzzResultOf(f *testing.F) {
	all, _ := ResultConfigMaps(publisher, result(rendered()))
	f.Add(all[0].BinaryData[indexKey], all[0].BinaryData[chunkKey])
	f.Add([]byte(`{"version": "kiln.dev/result/v1", "podUID": "pod-uid", "chunks": [{"name": "kiln-result-pod-uid-0", "bytes": -1}]}`), []byte("x"))
	f.Fuzz(func(t *testing.T, index, data []byte) {
		written := changed(all[0], func(c *corev1.ConfigMap) {
			c.BinaryData = map[string][]byte{indexKey: index, chunkKey: data}
		})
		r, err := ResultOf(written, nil, DefaultLimits)
		if err != nil {
			return
		}
		for path := range r.Changed {
			if CheckPath(path) != nil {
				t.Fatalf("path %q came through", path)
			}
		}
	})
}

func aMiB() map[string]string {
	files := map[string]string{}
	for i := range 64 {
		files[fmt.Sprintf("f%d.yaml", i)] = noise(16 << 10)
	}
	return files
}

func BenchmarkDigest(b *testing.B) {
	files := aMiB()
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		Digest(files)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	files := aMiB()
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := SnapshotConfigMap(publisher.Job, "", files); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnpackResult(b *testing.B) {
	output := aMiB()
	r := &Result{}
	r.Diff(nil, output)
	data, err := packResult(r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := unpackResult(data, DefaultLimits); err != nil {
			b.Fatal(err)
		}
	}
}
