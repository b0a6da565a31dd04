package pipeline

import (
	"fmt"
	"strings"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// bound keeps the first results and says how many it dropped.
func bound(results []function.Result, limit int) []function.Result {
	if len(results) <= limit {
		return results
	}
	dropped := len(results) - limit
	return append(results[:limit:limit], function.Result{
		Severity: function.Warning,
		Message:  fmt.Sprintf("%d more results are left out", dropped),
	})
}

// boundedText keeps the first bytes that are written to it.
type boundedText struct {
	text    strings.Builder
	limit   int
	dropped int
}

func (b *boundedText) Write(p []byte) (int, error) {
	room := min(max(b.limit-b.text.Len(), 0), len(p))
	b.text.Write(p[:room])
	b.dropped += len(p) - room
	return len(p), nil
}

func (b *boundedText) String() string {
	text := strings.ToValidUTF8(strings.TrimSuffix(b.text.String(), "\n"), "")
	if b.dropped > 0 {
		text += fmt.Sprintf("\n(%d more bytes)", b.dropped)
	}
	return text
}
