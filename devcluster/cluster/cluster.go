// Package cluster starts and stops embedded clusters from Go, for tests. It runs the devcluster binary, so what uses it links
// nothing of Kubernetes but its client.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// BinaryVariable names the environment variable with the path of the devcluster binary.
const BinaryVariable = "KILN_DEVCLUSTER"

// Options say what cluster to start.
type Options struct {
	// State is the cluster's folder: a new or empty one, or one of an earlier cluster. Required.
	State string
	// Binary is the path of devcluster; by default what BinaryVariable says, else the one in PATH.
	Binary string
	// Images maps names of images to "[UID[:GID]@]PATH [ARG...]".
	Images map[string]string
	// Flags are further flags of devcluster start.
	Flags []string
}

// Cluster is a cluster that was started.
type Cluster struct {
	// State is its folder, Kubeconfig the path of its administrator's kubeconfig.
	State, Kubeconfig string
	binary            string
}

// Status is what is known about a cluster.
type Status struct {
	State string `json:"state"`
	// Ready is whether the cluster was ready once and all components run.
	Ready bool `json:"ready"`
	// Supervisor is the process ID of the supervisor; 0 when no cluster is running.
	Supervisor int         `json:"supervisor,omitempty"`
	Kubeconfig string      `json:"kubeconfig,omitempty"`
	Server     string      `json:"server,omitempty"`
	Components []Component `json:"components,omitempty"`
}

// Component is one process of a cluster.
type Component struct {
	Name    string `json:"name"`
	PID     int    `json:"pid,omitempty"`
	Running bool   `json:"running"`
	// Exit says how the process ended.
	Exit string `json:"exit,omitempty"`
}

// Start starts a cluster and returns when pods can be created. A cluster that runs in the same folder is used as it is. The
// cluster lives on when ctx is done or the program ends; Stop ends it.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.State == "" {
		return nil, errors.New("start a cluster: no state folder was given")
	}
	c := &Cluster{State: options.State, binary: options.Binary}
	if c.binary == "" {
		c.binary = os.Getenv(BinaryVariable)
	}
	if c.binary == "" {
		c.binary = "devcluster"
	}
	flags := options.Flags
	for name, program := range options.Images {
		flags = append(flags, "--image", name+"="+program)
	}
	output, err := c.run(ctx, "start", flags...)
	if err != nil {
		return nil, err
	}
	c.Kubeconfig = strings.TrimSpace(output)
	return c, nil
}

// Stop ends the cluster and everything that runs in it. Stopping one that does not run is no error.
func (c *Cluster) Stop(ctx context.Context) error {
	_, err := c.run(ctx, "stop")
	return err
}

// Restart kills a component, named as in Status, and starts it again. Data survives that.
func (c *Cluster) Restart(ctx context.Context, component string) error {
	_, err := c.run(ctx, "restart", component)
	return err
}

// Status tells which components run.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	var status Status
	output, err := c.run(ctx, "status", "--output=json")
	if output == "" {
		return status, err
	}
	// A cluster that is not ready is an answer, and no error here.
	if err := json.Unmarshal([]byte(output), &status); err != nil {
		return status, fmt.Errorf("read the cluster's status: %w", err)
	}
	return status, nil
}

// RESTConfig leads to the API server as the administrator, without a limit on calls.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// UserConfig is RESTConfig for a user, whom the administrator impersonates.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config, nil
}

func (c *Cluster) run(ctx context.Context, command string, args ...string) (stdout string, err error) {
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, c.binary, append([]string{command, "--state", c.State}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("devcluster %s: %w: %s", command, err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
