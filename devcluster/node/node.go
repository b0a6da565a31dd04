// Package node runs the pods of one Kubernetes node as local processes. It registers the node and keeps it ready, follows the
// pods bound to it, reports on them as a kubelet does, and serves the kubelet's API for logs and exec.
package node

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// nodeIP is the address of the node and of all its pods: they share the host's network.
const nodeIP = "127.0.0.1"

// Config says how a node is set up.
type Config struct {
	Name string
	// REST leads to the API server. Its address is what pods get as the address of the API server.
	REST *rest.Config
	// StateDir is a folder of the host for logs and volumes. MountSource names the mounts of containers.
	StateDir, MountSource string
	// ImagesFile maps image names to programs, one per line; it is read at every look-up.
	ImagesFile string
	// Capacity and allocatable resources of the node.
	Capacity corev1.ResourceList
	// Port is where the kubelet API is served on loopback, with CertFile and KeyFile, for clients of the authority CAFile.
	Port                      int
	CAFile, CertFile, KeyFile string
	// RestartBackoff is the pause before a container's second restart; it doubles up to five minutes.
	RestartBackoff time.Duration
	Log            logr.Logger
}

// Node runs pods.
type Node struct {
	name, apiHost, apiPort         string
	client                         kubernetes.Interface
	events                         record.EventRecorder
	log                            logr.Logger
	podsDir, memoryDir, imagesFile string
	mountSource                    string
	allocatable                    corev1.ResourceList
	restartBackoff                 time.Duration

	mu      sync.Mutex
	workers map[string]*podWorker // by UID
	hashes  map[string]string     // of images
}

// Run runs the node until ctx is done. The containers are left to end with the process: no status speaks of them any more, as
// when a machine is switched off.
func Run(ctx context.Context, config Config) error {
	n, err := newNode(config)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	n.events = broadcaster.NewRecorder(legacyscheme.Scheme, corev1.EventSource{Component: "kubelet", Host: n.name})

	server, err := n.serve(config)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()

	n.followPods(ctx)
	return n.register(ctx, config)
}

func newNode(config Config) (*Node, error) {
	client, err := kubernetes.NewForConfig(config.REST)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	server, err := url.Parse(config.REST.Host)
	if err != nil {
		return nil, fmt.Errorf("parse the API server's address: %w", err)
	}
	n := &Node{
		name: config.Name, apiHost: server.Hostname(), apiPort: server.Port(),
		client: client, log: config.Log,
		podsDir: filepath.Join(config.StateDir, "pods"), memoryDir: filepath.Join(config.StateDir, "memory"),
		imagesFile: config.ImagesFile, mountSource: config.MountSource,
		allocatable: config.Capacity, restartBackoff: config.RestartBackoff,
		workers: map[string]*podWorker{}, hashes: map[string]string{},
	}
	for _, dir := range []string{n.podsDir, n.memoryDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the folders for pods: %w", err)
		}
	}
	if err := unix.Mount(config.MountSource, n.memoryDir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=755"); err != nil {
		return nil, fmt.Errorf("mount memory for secrets: %w", err)
	}
	return n, nil
}

// followPods starts a worker for every pod bound to the node, and tells it what becomes of the pod's object.
func (n *Node) followPods(ctx context.Context) {
	selector := fields.OneTermEqualSelector("spec.nodeName", n.name)
	source := cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), "pods", "", selector)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { n.observe(ctx, object.(*corev1.Pod)) },
			UpdateFunc: func(_, object any) { n.observe(ctx, object.(*corev1.Pod)) },
			DeleteFunc: n.forget,
		},
	})
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			n.removeOrphans()
		}
	}()
}

// removeOrphans removes the files of pods that went away while no process of the node was there. Those of other pods stay,
// for their logs.
func (n *Node) removeOrphans() {
	entries, err := os.ReadDir(n.podsDir)
	if err != nil {
		n.log.Error(err, "Looking for the files of pods that are gone failed")
		return
	}
	for _, entry := range entries {
		n.mu.Lock()
		_, known := n.workers[entry.Name()]
		n.mu.Unlock()
		if known {
			continue
		}
		if err := os.RemoveAll(filepath.Join(n.podsDir, entry.Name())); err != nil {
			n.log.Error(err, "Removing the files of a pod that is gone failed", "uid", entry.Name())
		}
	}
}

func (n *Node) observe(ctx context.Context, pod *corev1.Pod) {
	uid := string(pod.UID)
	n.mu.Lock()
	w := n.workers[uid]
	if w != nil {
		n.mu.Unlock()
		w.observe(pod)
		return
	}
	w = newPodWorker(n, pod)
	n.workers[uid] = w
	n.mu.Unlock()
	w.observe(pod)
	go func() {
		w.run(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.workers, uid)
	}()
}

func (n *Node) forget(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	w := n.workers[string(pod.UID)]
	n.mu.Unlock()
	if w != nil {
		w.vanish()
	}
}

// find returns the worker of the pod of that name, the newest if it was replaced.
func (n *Node) find(namespace, name string) *podWorker {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found *podWorker
	for _, w := range n.workers {
		if w.namespace == namespace && w.name == name && (found == nil || w.started.After(found.started)) {
			found = w
		}
	}
	return found
}

// register keeps the node's object and its lease until ctx is done.
func (n *Node) register(ctx context.Context, config Config) error {
	object := n.object(config)
	controller, err := node.NewNodeController(node.NaiveNodeProvider{}, object, n.client.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), node.DefaultLeaseDuration))
	if err != nil {
		return fmt.Errorf("set up the node's registration: %w", err)
	}
	if err := controller.Run(ctx); ctx.Err() == nil {
		return fmt.Errorf("keep the node registered: %w", err)
	}
	return nil
}

func (n *Node) object(config Config) *corev1.Node {
	object := &corev1.Node{}
	object.Name = n.name
	object.Labels = map[string]string{
		corev1.LabelHostname: n.name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}
	object.Status = corev1.NodeStatus{
		Capacity: config.Capacity, Allocatable: config.Capacity,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeIP}, {Type: corev1.NodeHostName, Address: n.name},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(config.Port)}},
		NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, KubeletVersion: kubeletVersion,
			ContainerRuntimeVersion: "devcluster://1", OSImage: "the host's", KernelVersion: kernelVersion(),
		},
		Conditions: []corev1.NodeCondition{
			nodeCondition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "devcluster's node is ready"),
			nodeCondition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "not watched by devcluster"),
			nodeCondition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "not watched by devcluster"),
			nodeCondition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "not watched by devcluster"),
		},
	}
	return object
}

// serve offers the kubelet's API to the API server.
func (n *Node) serve(config Config) (*http.Server, error) {
	certificate, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the kubelet API: %w", err)
	}
	authority, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority of the kubelet API: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", nodeIP, config.Port))
	if err != nil {
		return nil, fmt.Errorf("listen for the kubelet API: %w", err)
	}
	server := &http.Server{
		Handler: api.PodHandler(api.PodHandlerConfig{
			GetContainerLogs: n.containerLogs,
			RunInContainer:   n.runInContainer,
		}, false),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
			VerifyConnection: onlyAPIServer,
		},
	}
	go func() {
		if err := server.ServeTLS(listener, "", ""); err != http.ErrServerClosed {
			n.log.Error(err, "The kubelet API ended")
		}
	}()
	return server, nil
}

// APIServerUser is the user as whom the API server calls the kubelet API. No other may.
const APIServerUser = "kube-apiserver-kubelet-client"

func onlyAPIServer(state tls.ConnectionState) error {
	if user := state.PeerCertificates[0].Subject.CommonName; user != APIServerUser {
		return fmt.Errorf("user %q may not use the kubelet API", user)
	}
	return nil
}

// imageID names what an image runs by the program's contents.
func (n *Node) imageID(image *Image) string {
	info, err := os.Stat(image.Program)
	if err != nil {
		return ""
	}
	key := fmt.Sprintf("%s %d %d", image.Program, info.Size(), info.ModTime().UnixNano())
	n.mu.Lock()
	id, found := n.hashes[key]
	n.mu.Unlock()
	if found {
		return id
	}
	file, err := os.Open(image.Program)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return ""
	}
	id = fmt.Sprintf("devcluster://sha256:%x", hash.Sum(nil))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hashes[key] = id
	return id
}
