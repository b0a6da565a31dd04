package supervise

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kiln-dev/kiln/devcluster/internal/component"
	"github.com/kiln-dev/kiln/devcluster/internal/pki"
)

const (
	// startLimit is how long the cluster may take until it is ready.
	startLimit = 90 * time.Second
	// stopGrace is how long a component may take to end when asked.
	stopGrace = 5 * time.Second
	readyPoll = 25 * time.Millisecond
)

// supervisor owns the processes of one cluster.
type supervisor struct {
	plan      *plan
	processes []*process

	mu    sync.Mutex
	ready bool
}

// Up runs a cluster until ctx is done, then ends all of it. It reports what happens to progress; ready is called once.
func Up(ctx context.Context, options Options, progress io.Writer, ready func(Layout)) (err error) {
	if err := options.Check(); err != nil {
		return err
	}
	layout := Layout{options.State}
	if err := layout.Claim(); err != nil {
		return err
	}
	lock, err := takeLock(layout.lock())
	if err != nil {
		return fmt.Errorf("use the state folder %s: %w", layout.Dir, err)
	}
	defer func() { _ = lock.Close() }()
	if err := layout.prepare(options.Keep); err != nil {
		return err
	}
	if err := layout.addImages(options.Images); err != nil {
		return err
	}
	plan, err := newPlan(options)
	if err != nil {
		return err
	}
	s := &supervisor{plan: plan, processes: plan.processes(lock)}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	control, err := s.serveControl()
	if err != nil {
		return err
	}
	defer control()

	begin := time.Now()
	if err := s.bringUp(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	_, _ = fmt.Fprintf(progress, "The cluster is ready after %s.\n", time.Since(begin).Round(time.Millisecond))
	ready(layout)
	<-ctx.Done()
	return nil
}

// bringUp starts the components in their order and waits until pods can be made.
func (s *supervisor) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, p := range s.processes {
		if err := p.start(); err != nil {
			return err
		}
		if p.name != component.Etcd && p.name != component.APIServer {
			continue // they wait for each other by themselves
		}
		if err := s.await(ctx, p.name+" to serve", s.processes, func(ctx context.Context) bool { return s.serves(ctx, p.name) }); err != nil {
			return err
		}
	}
	client, err := s.adminClient()
	if err != nil {
		return err
	}
	return s.await(ctx, "the nodes and the default service account", s.processes, func(ctx context.Context) bool { return s.podsCanRun(ctx, client) })
}

// await polls until done says so; it gives up at once when one of the processes has ended.
func (s *supervisor) await(ctx context.Context, what string, processes []*process, done func(context.Context) bool) error {
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		for _, p := range processes {
			if c := p.state(); c.Exit != "" {
				return false, fmt.Errorf("%s has ended (%s): see %s", p.name, c.Exit, p.log)
			}
		}
		return done(ctx), nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// serves tells whether a component does its work, as far as that can be asked.
func (s *supervisor) serves(ctx context.Context, name string) bool {
	switch name {
	case component.Etcd:
		return s.etcdServes(ctx)
	case component.ControllerManager, component.Scheduler:
		return true // they listen nowhere
	case component.APIServer:
		return s.apiServerReady(ctx)
	}
	for i, port := range s.plan.nodePorts {
		if name != s.plan.nodeName(i) {
			continue
		}
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	}
	return false
}

func (s *supervisor) etcdServes(ctx context.Context) bool {
	certificate, err := tls.LoadX509KeyPair(s.plan.pkiFile("apiserver.crt"), s.plan.pkiFile("apiserver.key"))
	if err != nil {
		return false
	}
	// The authority is not checked: this only asks whether somebody is there, on a port that was just chosen.
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}
	return healthy(ctx, &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, fmt.Sprintf("https://127.0.0.1:%d/health", s.plan.etcdPort))
}

func healthy(ctx context.Context, client *http.Client, url string) bool {
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusOK
}

// apiServerReady also writes the administrator's kubeconfig, which is how it asks.
func (s *supervisor) apiServerReady(ctx context.Context) bool {
	client, err := s.adminClient()
	if err != nil {
		return false
	}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err == nil
}

func (s *supervisor) adminClient() (kubernetes.Interface, error) {
	path := s.plan.Kubeconfig()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		admin := pki.Subject{User: "devcluster-admin", Groups: []string{"system:masters"}}
		if err := s.plan.authority.Kubeconfig(path, s.plan.server, "admin", admin); err != nil {
			return nil, err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	return kubernetes.NewForConfig(config)
}

func (s *supervisor) podsCanRun(ctx context.Context, client kubernetes.Interface) bool {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) < s.plan.options.Nodes {
		return false
	}
	for i := range nodes.Items {
		if !isReady(&nodes.Items[i]) || len(nodes.Items[i].Spec.Taints) > 0 {
			return false
		}
	}
	_, accountErr := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	_, rootErr := client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	return accountErr == nil && rootErr == nil
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tearDown ends the nodes first, and their containers with them, then all other components together. Only data that is kept
// is worth a polite end.
func (s *supervisor) tearDown() error {
	first := len(s.processes) - s.plan.options.Nodes
	end := (*process).kill
	if s.plan.options.Keep {
		end = func(p *process) { p.stop(stopGrace) }
	}
	for _, group := range [][]*process{s.processes[first:], s.processes[:first]} {
		var ended sync.WaitGroup
		for _, p := range group {
			ended.Go(func() { end(p) })
		}
		ended.Wait()
	}
	// What is left of use are the logs. Credentials of a cluster that is gone only mislead.
	return s.plan.discard()
}
