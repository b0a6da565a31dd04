// Command devcluster runs a Kubernetes cluster out of one binary; see the README.
package main

import (
	"os"

	"github.com/kiln-dev/kiln/devcluster/internal/cli"
)

func main() {
	os.Exit(cli.Main())
}
