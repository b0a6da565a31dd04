// Package supervise starts the parts of a cluster as processes, watches them, and ends them so that nothing is left.
package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kiln-dev/kiln/devcluster/node"
)

// Options say what cluster to run.
type Options struct {
	// State is the folder that holds everything about the cluster.
	State string
	// Images are mappings as node.ParseImage reads them; they are written to the file Layout.Images.
	Images []string
	// Keep keeps the data and the credentials of an earlier run in the same folder.
	Keep bool
	// APIPort is the API server's loopback port; 0 chooses a free one.
	APIPort int
	// Nodes is how many nodes there are, each with the capacity below.
	Nodes                         int
	NodeCPU, NodeMemory, NodePods string
	// ControllerQPS bounds the controller manager's calls per second; kube-controller-manager's own default is 20.
	ControllerQPS, ControllerBurst int
	// AuditLog writes a line per API call, without bodies, to Layout.AuditLog.
	AuditLog bool
	// RestartBackoff is the pause before a container's second restart.
	RestartBackoff time.Duration
}

// Check reports the first reason why no cluster can be run with these options, here and by this user.
func (o *Options) Check() error {
	if os.Geteuid() != 0 {
		return errors.New("devcluster needs root, since it makes namespaces and mounts for containers: run it with sudo, or in a container with --privileged")
	}
	if o.Nodes < 1 {
		return fmt.Errorf("a cluster needs at least one node, not %d", o.Nodes)
	}
	for _, mapping := range o.Images {
		if _, _, err := node.ParseImage(mapping); err != nil {
			return err
		}
	}
	return nil
}

// Layout knows where things are in a state folder.
type Layout struct{ Dir string }

func (l Layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.Dir}, elements...)...)
}

// Kubeconfig is the administrator's kubeconfig.
func (l Layout) Kubeconfig() string { return l.path("kubeconfig") }

// Images maps image names to programs, one mapping per line. It may be changed while the cluster runs.
func (l Layout) Images() string { return l.path("images") }

// AuditLog has one JSON event per API call.
func (l Layout) AuditLog() string { return l.path("audit.log") }

// PKI is the folder of certificates and keys.
func (l Layout) PKI() string { return l.path("pki") }

// SupervisorLog has what a cluster in the background says.
func (l Layout) SupervisorLog() string { return l.path("supervisor.log") }

// Log is the log of a component.
func (l Layout) Log(component string) string { return l.path("logs", component+".log") }

func (l Layout) lock() string           { return l.path("devcluster.lock") }
func (l Layout) control() string        { return l.path("control.sock") }
func (l Layout) etcd() string           { return l.path("etcd") }
func (l Layout) node(n string) string   { return l.path("nodes", n) }
func (l Layout) config(c string) string { return l.path("config", c) }

// Claim makes the state folder, unless it is one. A folder that holds anything else is left alone.
func (l Layout) Claim() error {
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return fmt.Errorf("make the state folder: %w", err)
	}
	if l.isState() {
		return nil
	}
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return fmt.Errorf("read the state folder: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != filepath.Base(l.Images()) && name != filepath.Base(l.SupervisorLog()) {
			return fmt.Errorf("%s is not the folder of a cluster and holds %q: choose a new or an empty folder with --state", l.Dir, name)
		}
	}
	return nil
}

// isState tells whether a cluster was ever started in the folder.
func (l Layout) isState() bool {
	_, err := os.Stat(l.lock())
	return err == nil
}

// keptFile marks a state folder whose data and credentials are to be kept.
const keptFile = "keep"

// discard removes what a cluster that has ended left, but for its logs, its image mappings and, if it was run with Keep, data
// and credentials.
func (l Layout) discard() error {
	leftovers := []string{"kubeconfig", "control.sock", "nodes", "config"}
	if _, err := os.Stat(l.path(keptFile)); err != nil {
		leftovers = append(leftovers, "etcd", "pki")
	}
	for _, name := range leftovers {
		if err := os.RemoveAll(l.path(name)); err != nil {
			return fmt.Errorf("clear the state folder: %w", err)
		}
	}
	return nil
}

// prepare makes the state folder ready for a new cluster. What was kept is used only if that is asked for again.
func (l Layout) prepare(keep bool) error {
	if !keep {
		if err := os.RemoveAll(l.path(keptFile)); err != nil {
			return fmt.Errorf("clear the state folder: %w", err)
		}
	}
	if err := l.discard(); err != nil {
		return err
	}
	for _, name := range []string{"logs", "audit.log"} {
		if err := os.RemoveAll(l.path(name)); err != nil {
			return fmt.Errorf("clear the state folder: %w", err)
		}
	}
	for _, name := range []string{"logs", "nodes", "config"} {
		if err := os.MkdirAll(l.path(name), 0o700); err != nil {
			return fmt.Errorf("prepare the state folder: %w", err)
		}
	}
	if keep {
		return os.WriteFile(l.path(keptFile), nil, 0o600)
	}
	return nil
}

// addImages appends mappings to the images file; a later line wins.
func (l Layout) addImages(mappings []string) error {
	file, err := os.OpenFile(l.Images(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the image mappings: %w", err)
	}
	if len(mappings) > 0 {
		if _, err := file.WriteString(strings.Join(mappings, "\n") + "\n"); err != nil {
			return fmt.Errorf("write the image mappings: %w", err)
		}
	}
	return file.Close()
}
