// Command sleepyrenderer is the renderer, but for packages whose name begins with "sleepy-" it sleeps first: tests can run
// many renders at once, for seconds, without keeping a processor busy.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/renderer"
)

const nap = 6 * time.Second

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// As the renderer does it: a function may keep the pipeline from noticing.
	context.AfterFunc(ctx, func() {
		time.AfterFunc(time.Second/2, func() { os.Exit(bundle.ExitCancelled) })
	})
	config, err := renderer.ConfigFromEnv("sleepy")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return bundle.ExitUnable
	}
	if strings.HasPrefix(config.Package, "sleepy-") {
		select {
		case <-ctx.Done():
			return bundle.ExitCancelled
		case <-time.After(nap):
		}
	}
	return renderer.Run(ctx, config, renderer.ToCluster, os.Stdout)
}
