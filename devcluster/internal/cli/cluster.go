package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kiln-dev/kiln/devcluster/cluster"
	"github.com/kiln-dev/kiln/devcluster/internal/pki"
	"github.com/kiln-dev/kiln/devcluster/internal/supervise"
)

// stateVariable names the environment variable with the default state folder.
const stateVariable = "DEVCLUSTER_STATE"

func defaultState() string {
	if dir := os.Getenv(stateVariable); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "devcluster")
}

func absolute(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the state folder: %w", err)
	}
	return path, nil
}

func stateFlag(flags *pflag.FlagSet, state *string) {
	flags.StringVar(state, "state", defaultState(), "folder that holds the cluster (or "+stateVariable+")")
}

func optionFlags(flags *pflag.FlagSet, o *supervise.Options) {
	stateFlag(flags, &o.State)
	flags.StringArrayVar(&o.Images, "image", nil, "map an image to a local program, NAME=[UID[:GID]@]PATH [ARG...]; repeatable; also lines in STATE/images at any time")
	flags.BoolVar(&o.Keep, "keep", false, "keep data and credentials for the next start, and use those that were kept; without it a start begins fresh")
	flags.IntVar(&o.APIPort, "port", 0, "loopback port of the API server (0: a free one)")
	flags.IntVar(&o.Nodes, "nodes", 1, "how many nodes")
	flags.StringVar(&o.NodeCPU, "node-cpu", "32", "CPUs of each node, as the scheduler sees them; nothing enforces them")
	flags.StringVar(&o.NodeMemory, "node-memory", "64Gi", "memory of each node, as the scheduler sees it; nothing enforces it")
	flags.StringVar(&o.NodePods, "node-pods", "500", "most pods on each node")
	flags.IntVar(&o.ControllerQPS, "controller-qps", 200, "calls per second of each controller in kube-controller-manager, and of the scheduler (Kubernetes' defaults are 20 and 50)")
	flags.IntVar(&o.ControllerBurst, "controller-burst", 400, "calls at once for the same (Kubernetes' defaults are 30 and 100)")
	flags.BoolVar(&o.AuditLog, "audit-log", true, "record every API call, without bodies, in STATE/audit.log")
	flags.DurationVar(&o.RestartBackoff, "restart-backoff", 10*time.Second, "pause before a container's second restart; it doubles up to 5m")
}

func upCommand() *cobra.Command {
	var options supervise.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a cluster in the foreground; Ctrl-C stops it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.State, err = absolute(options.State); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return supervise.Up(ctx, options, os.Stderr, func(l supervise.Layout) { fmt.Println(l.Kubeconfig()) })
		},
	}
	optionFlags(cmd.Flags(), &options)
	return cmd
}

func startCommand() *cobra.Command {
	var options supervise.Options
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a cluster in the background and print the path of its kubeconfig",
		Long:  "Start a cluster in the background and print the path of its kubeconfig, and nothing else, on standard output.\nA cluster that runs is left as it is.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.State, err = absolute(options.State); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return start(ctx, options)
		},
	}
	optionFlags(cmd.Flags(), &options)
	return cmd
}

func start(ctx context.Context, options supervise.Options) error {
	if err := options.Check(); err != nil {
		return err
	}
	status, err := supervise.Query(ctx, options.State)
	if err == nil && status.Supervisor != 0 {
		if !status.Ready {
			return fmt.Errorf("the cluster in %s is running, but not ready: see devcluster status --state %s", options.State, options.State)
		}
		_, _ = fmt.Fprintf(os.Stderr, "The cluster in %s is already running.\n", options.State)
		fmt.Println(status.Kubeconfig)
		return nil
	}
	// Parts of a cluster whose supervisor was killed may still be ending.
	if _, err := supervise.Stop(ctx, options.State); err != nil {
		return err
	}
	if err := (supervise.Layout{Dir: options.State}).Claim(); err != nil {
		return err
	}
	return spawn(ctx, options)
}

// spawn runs "up" with the same flags in the background and waits until it says that the cluster is ready.
func spawn(ctx context.Context, options supervise.Options) error {
	logPath := supervise.Layout{Dir: options.State}.SupervisorLog()
	log, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("make the supervisor's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"up"}, os.Args[2:]...)...)
	cmd.Stdout, cmd.Stderr = write, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	_ = write.Close()
	interrupted := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer interrupted()
	kubeconfig, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		_ = cmd.Wait() // its log says more
		reason, _ := os.ReadFile(logPath)
		return fmt.Errorf("the cluster did not start: %s", strings.TrimPrefix(lastLine(reason), "devcluster: "))
	}
	fmt.Print(kubeconfig)
	return cmd.Process.Release()
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

func stopCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop a cluster, with all its containers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := absolute(state)
			if err != nil {
				return err
			}
			was, err := supervise.Stop(cmd.Context(), dir)
			if err == nil && !was {
				_, _ = fmt.Fprintf(os.Stderr, "No cluster is running in %s.\n", dir)
			}
			return err
		},
	}
	stateFlag(cmd.Flags(), &state)
	return cmd
}

func statusCommand() *cobra.Command {
	var state, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster's components; fails unless all of them run and the cluster is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := absolute(state)
			if err != nil {
				return err
			}
			status, err := supervise.Query(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if output == "json" {
				if err := json.NewEncoder(os.Stdout).Encode(status); err != nil {
					return err
				}
			} else {
				printStatus(status)
			}
			if !status.Ready {
				return errors.New("the cluster is not ready")
			}
			return nil
		},
	}
	stateFlag(cmd.Flags(), &state)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs")
	return cmd
}

func printStatus(s cluster.Status) {
	if s.Supervisor == 0 {
		fmt.Printf("No cluster is running in %s.\n", s.State)
		return
	}
	fmt.Printf("state       %s\nready       %v\nsupervisor  %d\nserver      %s\nkubeconfig  %s\n", s.State, s.Ready, s.Supervisor, s.Server, s.Kubeconfig)
	for _, c := range s.Components {
		condition := "running"
		if !c.Running {
			condition = "not running (" + c.Exit + ")"
		}
		fmt.Printf("%-26s %7d  %s\n", c.Name, c.PID, condition)
	}
}

func restartCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Kill a component and start it again, as status names it",
		Long:  "Kill a component and start it again. Data survives a restart of any of them.\nThe containers of a node end with it; see the README for what becomes of their pods.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := absolute(state)
			if err != nil {
				return err
			}
			return supervise.Restart(cmd.Context(), dir, args[0])
		},
	}
	stateFlag(cmd.Flags(), &state)
	return cmd
}

func kubeconfigCommand() *cobra.Command {
	var state, user string
	var groups []string
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME [--group NAME]... FILE",
		Short: "Write a kubeconfig with a certificate for a user",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := absolute(state)
			if err != nil {
				return err
			}
			status, err := supervise.Query(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if status.Server == "" {
				return fmt.Errorf("no cluster is running in %s", dir)
			}
			authority, err := pki.Load(supervise.Layout{Dir: dir}.PKI())
			if err != nil {
				return fmt.Errorf("load the cluster's authority: %w", err)
			}
			return authority.Kubeconfig(args[0], status.Server, fmt.Sprintf("user-%x", user), pki.Subject{User: user, Groups: groups})
		},
	}
	stateFlag(cmd.Flags(), &state)
	cmd.Flags().StringVar(&user, "user", "", "name of the user")
	cmd.Flags().StringArrayVar(&groups, "group", nil, "a group of the user; repeatable")
	_ = cmd.MarkFlagRequired("user")
	return cmd
}
