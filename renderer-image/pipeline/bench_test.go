package pipeline_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// BenchmarkRender renders the packages of Nephio in the corpus.
func BenchmarkRender(b *testing.B) {
	for _, c := range corpusCases(b, "nephio-packages") {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.in, 0) })
	}
}

// BenchmarkResources shows how the time grows with the number of resources: ns/resource is what to compare. Each of three
// functions sees all of them; each file has ten resources and each package ten files.
func BenchmarkResources(b *testing.B) {
	const kptfile = plainKptfile + `pipeline:
  mutators:
  - image: set-namespace:v0.4
    configMap: {namespace: shop}
  - image: set-labels:v0.2
    configMap: {app: web}
  - image: set-annotations:v0.1
    configMap: {note: a}
    selectors: [{kind: Deployment}]
`
	for _, count := range []int{100, 1_000, 9_900} {
		files := map[string]string{"Kptfile": kptfile}
		for i := range count {
			dir := fmt.Sprintf("p%d/", i/100)
			files[dir+"Kptfile"] = plainKptfile
			text := fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-%d # the name\nspec:\n  template:\n"+
				"    spec:\n      containers:\n      - name: web\n        image: nginx:1.27\n", i)
			files[fmt.Sprintf("%sf%d.yaml", dir, i/10)] += text + "---\n"
		}
		b.Run(fmt.Sprint(count), func(b *testing.B) { benchmark(b, files, count) })
	}
}

func benchmark(b *testing.B, files map[string]string, resources int) {
	size := 0
	for _, content := range files {
		size += len(content)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		outcome, err := pipeline.Render(context.Background(), files, pipeline.Options{Functions: function.Builtins()})
		if err != nil || (resources > 0 && outcome.Failure != nil) {
			b.Fatal(err, outcome.Failure)
		}
	}
	if resources > 0 {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*resources), "ns/resource")
	}
}
