package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kiln-dev/kiln/devcluster/internal/component"
	"github.com/kiln-dev/kiln/devcluster/internal/pki"
	"github.com/kiln-dev/kiln/devcluster/node"
)

// ComponentArg is the first argument that makes the binary run the component that the next argument names.
const ComponentArg = "component"

// controllers are those of kube-controller-manager that make sense with a single machine and no cloud or storage.
var controllers = []string{
	"job-controller", "cronjob-controller", "deployment-controller", "replicaset-controller",
	"garbage-collector-controller", "resourcequota-controller", "ttl-after-finished-controller", "namespace-controller",
	"serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller",
	"pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller",
	"clusterrole-aggregation-controller", "disruption-controller", "endpoints-controller", "endpointslice-controller",
	"validatingadmissionpolicy-status-controller",
}

// auditPolicy records every call, without bodies, once.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// plan is everything that is fixed before the first component starts.
type plan struct {
	options Options
	Layout
	apiPort, etcdPort, peerPort int
	nodePorts                   []int
	server                      string
	authority                   *pki.Authority
}

func newPlan(options Options) (*plan, error) {
	p := &plan{options: options, Layout: Layout{options.State}}
	ports, err := freePorts(3 + options.Nodes)
	if err != nil {
		return nil, err
	}
	p.apiPort, p.etcdPort, p.peerPort, p.nodePorts = ports[0], ports[1], ports[2], ports[3:]
	if options.APIPort != 0 {
		p.apiPort = options.APIPort
	}
	p.server = fmt.Sprintf("https://127.0.0.1:%d", p.apiPort)
	if p.authority, err = pki.Open(p.PKI()); err != nil {
		return nil, err
	}
	return p, p.writeCredentials()
}

func (p *plan) nodeName(i int) string { return "node-" + strconv.Itoa(i+1) }

func (p *plan) writeCredentials() error {
	if err := pki.SigningKey(p.pkiFile("service-account.key")); err != nil {
		return err
	}
	loopback := []string{"127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"}
	for name, subject := range map[string]pki.Subject{
		"etcd":           {User: "etcd", Hosts: loopback},
		"apiserver":      {User: "kube-apiserver", Hosts: loopback},
		"kubelet-client": {User: node.APIServerUser},
		"kubelet":        {User: "kubelet", Hosts: loopback},
	} {
		if _, _, err := p.authority.Issue(name, subject); err != nil {
			return err
		}
	}
	users := map[string]pki.Subject{
		component.ControllerManager: {User: "system:kube-controller-manager"},
		component.Scheduler:         {User: "system:kube-scheduler"},
	}
	for i := range p.options.Nodes {
		users[p.nodeName(i)] = pki.Subject{User: "system:node:" + p.nodeName(i), Groups: []string{"system:nodes"}}
	}
	for name, subject := range users {
		if err := p.authority.Kubeconfig(p.config(name), p.server, name, subject); err != nil {
			return err
		}
	}
	return os.WriteFile(p.config("audit.yaml"), []byte(auditPolicy), 0o600)
}

func (p *plan) pkiFile(name string) string { return filepath.Join(p.PKI(), name) }

// mountSource marks the mounts of this cluster's containers in the mount tables of processes.
func (l Layout) mountSource() string { return "devcluster:" + l.Dir }

func (p *plan) processes(lock *os.File) []*process {
	list := []*process{
		p.process(lock, component.Etcd, component.Etcd, p.etcdArgs(), 0),
		p.process(lock, component.APIServer, component.APIServer, p.apiServerArgs(), 0),
		p.process(lock, component.ControllerManager, component.ControllerManager, p.controllerManagerArgs(), 0),
		p.process(lock, component.Scheduler, component.Scheduler, p.schedulerArgs(), 0),
	}
	for i := range p.options.Nodes {
		// Being PID 1 of its own namespace, the node takes all its containers with it when it ends.
		list = append(list, p.process(lock, p.nodeName(i), node.CommandName, p.nodeArgs(i), syscall.CLONE_NEWNS|syscall.CLONE_NEWPID))
	}
	return list
}

func (p *plan) process(lock *os.File, name, command string, args []string, namespaces uintptr) *process {
	return &process{
		name: name, args: append([]string{ComponentArg, command}, args...), namespaces: namespaces, log: p.Log(name), lock: lock,
	}
}

func (p *plan) etcdArgs() []string {
	return []string{
		"--data-dir=" + p.etcd(), "--ca-file=" + p.authority.CertFile(),
		"--cert-file=" + p.pkiFile("etcd.crt"), "--key-file=" + p.pkiFile("etcd.key"),
		fmt.Sprintf("--client-port=%d", p.etcdPort), fmt.Sprintf("--peer-port=%d", p.peerPort),
	}
}

func (p *plan) apiServerArgs() []string {
	args := []string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", p.etcdPort), "--etcd-cafile=" + p.authority.CertFile(),
		"--etcd-certfile=" + p.pkiFile("apiserver.crt"), "--etcd-keyfile=" + p.pkiFile("apiserver.key"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.apiPort),
		"--tls-cert-file=" + p.pkiFile("apiserver.crt"), "--tls-private-key-file=" + p.pkiFile("apiserver.key"),
		"--client-ca-file=" + p.authority.CertFile(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.pkiFile("service-account.key"),
		"--service-account-signing-key-file=" + p.pkiFile("service-account.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-certificate-authority=" + p.authority.CertFile(),
		"--kubelet-client-certificate=" + p.pkiFile("kubelet-client.crt"),
		"--kubelet-client-key=" + p.pkiFile("kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
		// An endpoint of the kubernetes service may not be a loopback address; pods get the address from the node.
		"--endpoint-reconciler-type=none",
		"--shutdown-delay-duration=0s",
	}
	if p.options.AuditLog {
		args = append(args, "--audit-policy-file="+p.config("audit.yaml"), "--audit-log-path="+p.AuditLog(), "--audit-log-maxsize=1024")
	}
	return args
}

func (p *plan) controllerManagerArgs() []string {
	config := p.config(component.ControllerManager)
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=true",
		"--service-account-private-key-file=" + p.pkiFile("service-account.key"), "--root-ca-file=" + p.authority.CertFile(),
		"--controllers=" + strings.Join(controllers, ","),
		fmt.Sprintf("--kube-api-qps=%d", p.options.ControllerQPS), fmt.Sprintf("--kube-api-burst=%d", p.options.ControllerBurst),
	}
}

func (p *plan) schedulerArgs() []string {
	config := p.config(component.Scheduler)
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--leader-elect=false", "--secure-port=0",
		fmt.Sprintf("--kube-api-qps=%d", p.options.ControllerQPS), fmt.Sprintf("--kube-api-burst=%d", p.options.ControllerBurst),
	}
}

func (p *plan) nodeArgs(i int) []string {
	name := p.nodeName(i)
	return []string{
		"--name=" + name, "--kubeconfig=" + p.config(name), "--state-dir=" + p.node(name), "--images=" + p.Images(),
		"--mount-source=" + p.mountSource(), fmt.Sprintf("--port=%d", p.nodePorts[i]),
		"--ca-file=" + p.authority.CertFile(), "--cert-file=" + p.pkiFile("kubelet.crt"), "--key-file=" + p.pkiFile("kubelet.key"),
		"--cpu=" + p.options.NodeCPU, "--memory=" + p.options.NodeMemory, "--pods=" + p.options.NodePods,
		"--restart-backoff=" + p.options.RestartBackoff.String(),
	}
}
