package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"

	"github.com/kiln-dev/kiln/devcluster/internal/supervise"
)

// runKubectl is kubectl with the arguments args, of which the first is "kubectl". A first flag --state chooses the
// cluster's kubeconfig; so does the default state folder if there is no KUBECONFIG and no flag says otherwise.
func runKubectl(args []string) int {
	state, rest := "", args[1:]
	if len(rest) > 1 && rest[0] == "--state" {
		state, rest = rest[1], rest[2:]
	} else if len(rest) > 0 && strings.HasPrefix(rest[0], "--state=") {
		state, rest = strings.TrimPrefix(rest[0], "--state="), rest[1:]
	}
	said := os.Getenv("KUBECONFIG") != "" || slices.ContainsFunc(rest, func(arg string) bool {
		return strings.HasPrefix(arg, "--kubeconfig") || strings.HasPrefix(arg, "--server") || arg == "-s"
	})
	if state != "" || !said {
		if err := useCluster(state); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "devcluster:", err)
			return 1
		}
	}
	os.Args = append([]string{"kubectl"}, rest...)
	return cli.Run(kubectl.NewDefaultKubectlCommand())
}

// useCluster lets kubectl use the cluster in a state folder, which must be running unless the folder is only the default.
func useCluster(state string) error {
	chosen := state != ""
	if !chosen {
		state = defaultState()
	}
	dir, err := absolute(state)
	if err != nil {
		return err
	}
	kubeconfig := supervise.Layout{Dir: dir}.Kubeconfig()
	if _, err := os.Stat(kubeconfig); err != nil {
		if chosen {
			return fmt.Errorf("no cluster is running in %s", dir)
		}
		_, _ = fmt.Fprintf(os.Stderr, "devcluster: no cluster is running in %s; choose one with devcluster kubectl --state DIR\n", dir)
		return nil
	}
	return os.Setenv("KUBECONFIG", kubeconfig)
}

// kubectlHelp only makes kubectl show up in the help: Main runs it before this is reached.
func kubectlHelp() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [--state DIR] ...",
		Short:              "Run the built-in kubectl against the cluster",
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return nil },
	}
}
