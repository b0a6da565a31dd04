package pipeline_test

import (
	"context"
	"testing"

	"github.com/kiln-dev/kiln/renderer-image/function"
	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

func BenchmarkRender(b *testing.B) {
	for _, c := range corpusCases(b, "nephio-packages") {
		b.Run(c.name, func(b *testing.B) {
			size := 0
			for _, content := range c.in {
				size += len(content)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := pipeline.Render(context.Background(), c.in, pipeline.Options{Functions: function.Builtins()}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
