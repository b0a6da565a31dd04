// Package cli is the command line of devcluster.
package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"

	"github.com/kiln-dev/kiln/devcluster/internal/component"
	"github.com/kiln-dev/kiln/devcluster/internal/supervise"
	"github.com/kiln-dev/kiln/devcluster/node"
)

// Main runs the command line and returns the exit code.
func Main() int {
	if filepath.Base(os.Args[0]) == "kubectl" {
		return cli.Run(kubectl.NewDefaultKubectlCommand())
	}
	if len(os.Args) > 2 && os.Args[1] == supervise.ComponentArg {
		return runComponent(os.Args[2], os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == "kubectl" {
		return runKubectl(os.Args[1:])
	}
	root := &cobra.Command{
		Use:           "devcluster",
		Short:         "A Kubernetes cluster in one binary: a real control plane, and a node that runs containers as local processes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), startCommand(), stopCommand(), statusCommand(), restartCommand(), kubeconfigCommand(), kubectlHelp())
	if err := root.Execute(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "devcluster:", err)
		return 1
	}
	return 0
}

// runComponent is the whole life of a process that the supervisor started.
func runComponent(name string, args []string) int {
	// The lock of the cluster, see supervise: containers must not inherit it.
	syscall.CloseOnExec(3)
	cmd := component.Command(name)
	if name == node.CommandName {
		cmd = node.Command()
	}
	if cmd != nil {
		os.Args = args
		cmd.SetArgs(args[1:])
		return cli.Run(cmd)
	}
	_, _ = fmt.Fprintf(os.Stderr, "devcluster: there is no component %q\n", name)
	return 1
}
