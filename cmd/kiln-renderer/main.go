// Command kiln-renderer renders the snapshot that a Job's pod finds mounted, and publishes the result.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/renderer"
)

// version is set by the linker.
var version = "dev"

// cancelPatience is how long after SIGTERM the process waits for its work to end by itself.
const cancelPatience = 500 * time.Millisecond

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(version)
		return
	}
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() {
		time.AfterFunc(cancelPatience, func() { os.Exit(bundle.ExitCancelled) })
	})
	config, err := renderer.ConfigFromEnv(version)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kiln-renderer is started by Kiln's Jobs; something is missing:\n%v\n", err)
		return bundle.ExitUnable
	}
	return renderer.Run(ctx, config, renderer.ToCluster, os.Stdout)
}
