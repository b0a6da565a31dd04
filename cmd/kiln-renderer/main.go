// Command kiln-renderer renders the snapshot that a Job's pod finds mounted, and publishes the result.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/renderer"
)

// version is set by the linker.
var version = "dev"

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
	config, err := renderer.ConfigFromEnv(version)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kiln-renderer is started by Kiln's Jobs; something is missing:\n%v\n", err)
		return bundle.ExitUnable
	}
	return renderer.Run(ctx, config, renderer.ToCluster, os.Stdout)
}
