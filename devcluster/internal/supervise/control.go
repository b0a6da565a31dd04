package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kiln-dev/kiln/devcluster/cluster"
)

// serveControl answers status and restart on a socket in the state folder, which only its owner can reach.
func (s *supervisor) serveControl() (stop func(), err error) {
	address, done, err := socketAddress(s.plan.control())
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", address)
	done()
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	if err := os.Chmod(s.plan.control(), 0o600); err != nil {
		return nil, fmt.Errorf("protect the control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.status())
	})
	mux.HandleFunc("POST /restart/{component}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.restart(r.Context(), r.PathValue("component")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	return func() {
		_ = server.Close()
		_ = os.Remove(s.plan.control())
	}, nil
}

// socketAddress gives a short name to a socket's path, as a socket's name may not be longer than 107 bytes.
func socketAddress(path string) (address string, done func(), err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, fmt.Errorf("open the state folder: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

func (s *supervisor) status() cluster.Status {
	s.mu.Lock()
	status := cluster.Status{State: s.plan.Dir, Ready: s.ready, Supervisor: os.Getpid(), Kubeconfig: s.plan.Kubeconfig(), Server: s.plan.server}
	s.mu.Unlock()
	for _, p := range s.processes {
		c := p.state()
		status.Ready = status.Ready && c.Running
		status.Components = append(status.Components, c)
	}
	return status
}

// restart kills a component, or takes one that has ended, and starts it again; it returns when the component serves.
func (s *supervisor) restart(ctx context.Context, name string) error {
	for _, p := range s.processes {
		if p.name != name {
			continue
		}
		p.kill()
		if err := p.start(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		return s.await(ctx, name+" to serve again", []*process{p}, func(ctx context.Context) bool { return s.serves(ctx, name) })
	}
	return fmt.Errorf("there is no component %q; see status", name)
}

// Query asks the supervisor of the cluster in the state folder. A folder without a living cluster is no error.
func Query(ctx context.Context, state string) (cluster.Status, error) {
	layout := Layout{state}
	if _, alive := locked(layout.lock()); !alive {
		return cluster.Status{State: state}, nil
	}
	var status cluster.Status
	err := layout.call(ctx, http.MethodGet, "/status", &status)
	return status, err
}

// Restart restarts a component of the cluster in the state folder.
func Restart(ctx context.Context, state, component string) error {
	return Layout{state}.call(ctx, http.MethodPost, "/restart/"+component, nil)
}

func (l Layout) call(ctx context.Context, method, path string, result any) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		address, done, err := socketAddress(l.control())
		if err != nil {
			return nil, err
		}
		defer done()
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://devcluster"+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the cluster in %s: %w", l.Dir, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		var message [1024]byte
		n, _ := response.Body.Read(message[:])
		return fmt.Errorf("the cluster in %s answers: %s", l.Dir, message[:n])
	}
	if result == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(result)
}

// unlockLimit is how long the components of a supervisor that was killed may take to end.
const unlockLimit = 20 * time.Second

// Stop ends the cluster in the state folder, and clears what one that was killed left there. It reports whether there was one.
func Stop(ctx context.Context, state string) (wasRunning bool, err error) {
	layout := Layout{state}
	if !layout.isState() {
		return false, nil
	}
	supervisor, alive := locked(layout.lock())
	if !alive {
		return false, layout.discard()
	}
	terminate(supervisor, layout)
	err = wait.PollUntilContextTimeout(ctx, readyPoll, unlockLimit, true, func(context.Context) (bool, error) {
		_, alive := locked(layout.lock())
		return !alive, nil
	})
	if err != nil {
		return true, fmt.Errorf("wait for the cluster in %s to end: %w", state, err)
	}
	return true, layout.discard()
}
