// Package component holds the parts of the cluster that run as processes of their own. The Kubernetes parts keep their
// own commands and flags: this package only gives them a place in the binary.
package component

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Names of the components, in the order in which they start.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Command returns the command of a component of the control plane, or nil. Only the command that will run may be made, as
// some of them listen for signals from then on.
func Command(name string) *cobra.Command {
	switch name {
	case Etcd:
		return etcdCommand()
	case APIServer:
		return apiserver.NewAPIServerCommand()
	case ControllerManager:
		return controllermanager.NewControllerManagerCommand()
	case Scheduler:
		return scheduler.NewSchedulerCommand()
	}
	return nil
}

// etcdStartLimit is how long etcd may take until it serves.
const etcdStartLimit = 30 * time.Second

func etcdCommand() *cobra.Command {
	var dataDir, caFile, certFile, keyFile string
	var clientPort, peerPort int
	cmd := &cobra.Command{Use: Etcd, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		config := embed.NewConfig()
		config.Dir = dataDir
		config.LogLevel = "warn"
		// What this cluster stores is thrown away with it, so nothing waits for the disk.
		config.UnsafeNoFsync = true
		config.QuotaBackendBytes = 8 << 30
		client := url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", clientPort)}
		peer := url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", peerPort)}
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		config.InitialCluster = config.InitialClusterFromName(config.Name)
		tls := transport.TLSInfo{TrustedCAFile: caFile, CertFile: certFile, KeyFile: keyFile, ClientCertAuth: true}
		config.ClientTLSInfo, config.PeerTLSInfo = tls, tls

		etcd, err := embed.StartEtcd(config)
		if err != nil {
			return fmt.Errorf("start etcd: %w", err)
		}
		defer etcd.Close()
		select {
		case <-etcd.Server.ReadyNotify():
		case <-time.After(etcdStartLimit):
			return fmt.Errorf("etcd did not become ready within %s", etcdStartLimit)
		}
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
		select {
		case <-stop:
			return nil
		case err := <-etcd.Err():
			return fmt.Errorf("etcd stopped: %w", err)
		}
	}}
	flags := cmd.Flags()
	flags.StringVar(&dataDir, "data-dir", "", "folder for the data")
	flags.StringVar(&caFile, "ca-file", "", "authority for clients and peers")
	flags.StringVar(&certFile, "cert-file", "", "certificate of the server")
	flags.StringVar(&keyFile, "key-file", "", "key of the server")
	flags.IntVar(&clientPort, "client-port", 0, "loopback port for clients")
	flags.IntVar(&peerPort, "peer-port", 0, "loopback port for peers")
	return cmd
}
