package node

import (
	"fmt"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// CommandName is the name of the node's own command.
const CommandName = "node"

// Command returns the command that runs a node in its own process, which must be in PID and mount namespaces of its own:
// the end of the node is then the end of all its containers, whatever happens.
func Command() *cobra.Command {
	var config Config
	var kubeconfig, cpu, memory, pods string
	cmd := &cobra.Command{Use: CommandName, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := ownMounts(); err != nil {
			return err
		}
		var err error
		if config.REST, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return fmt.Errorf("read the node's kubeconfig: %w", err)
		}
		config.REST.QPS = -1 // a status that waits for its turn would look like a slow pod
		config.Capacity = corev1.ResourceList{}
		for name, value := range map[corev1.ResourceName]string{
			corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, corev1.ResourcePods: pods, corev1.ResourceEphemeralStorage: "100Gi",
		} {
			quantity, err := resource.ParseQuantity(value)
			if err != nil {
				return fmt.Errorf("parse the node's %s %q: %w", name, value, err)
			}
			config.Capacity[name] = quantity
		}
		config.Log = klog.Background()
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return Run(ctx, config)
	}}
	flags := cmd.Flags()
	flags.StringVar(&config.Name, "name", "", "name of the node")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	flags.StringVar(&config.StateDir, "state-dir", "", "folder for logs and volumes")
	flags.StringVar(&config.MountSource, "mount-source", "devcluster", "name of the mounts of containers")
	flags.StringVar(&config.ImagesFile, "images", "", "file that maps images to programs")
	flags.StringVar(&cpu, "cpu", "32", "CPUs of the node")
	flags.StringVar(&memory, "memory", "64Gi", "memory of the node")
	flags.StringVar(&pods, "pods", "500", "most pods on the node")
	flags.IntVar(&config.Port, "port", 0, "loopback port of the kubelet API")
	flags.StringVar(&config.CAFile, "ca-file", "", "authority for clients of the kubelet API")
	flags.StringVar(&config.CertFile, "cert-file", "", "certificate of the kubelet API")
	flags.StringVar(&config.KeyFile, "key-file", "", "key of the kubelet API")
	flags.DurationVar(&config.RestartBackoff, "restart-backoff", 10*time.Second, "pause before a container's second restart; it doubles")
	return cmd
}

// ownMounts detaches the process's mounts from the host's and shows it its own processes.
func ownMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	_, err := filepath.EvalSymlinks("/proc/self/exe")
	return err
}
