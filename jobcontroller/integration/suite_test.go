// Package integration tests the controller against a real API server, Job controller, garbage collector, quota and node:
// the embedded cluster. Nothing is mocked but the container image, which is a local program.
package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

const (
	controllerNamespace = "kiln-system"
	controllerAccount   = "kiln-controller"

	// patience is how long anything may take that takes a second or two; it only bounds how long a failure takes to show.
	patience = time.Minute
)

// The suite's cluster and the clients of its administrator.
var (
	repository string
	bin        string
	// work is a folder for this run; the cluster's state is in a folder of its own below it.
	work, state string
	adminFile   string
	adminConfig *rest.Config
	admin       client.Client
	clientset   *kubernetes.Clientset
	// theController is the one that runs while a test does not say otherwise.
	theController *controllerProcess
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if role := os.Getenv(envRacer); role != "" {
		fmt.Fprintln(os.Stderr, "racer:", runRacer(role))
		os.Exit(1)
	}
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		fmt.Println("integration: skipped: the embedded cluster's node needs root")
		return 0, nil
	}
	if repository, err = filepath.Abs("../.."); err != nil {
		return 1, err
	}
	bin = os.Getenv("KILN_BIN")
	if bin == "" {
		bin = filepath.Join(repository, "bin")
	}
	if _, err := os.Stat(filepath.Join(bin, "devcluster")); err != nil {
		return 1, fmt.Errorf("the embedded cluster is not built: run `make build` first: %w", err)
	}
	if work, err = os.MkdirTemp("", "kiln-integration-"); err != nil {
		return 1, err
	}
	state = filepath.Join(work, "cluster")
	defer func() {
		stopErr := command("devcluster", "stop", "--state", state).Run()
		if code == 0 {
			err = errors.Join(err, stopErr, os.RemoveAll(work))
		} else {
			fmt.Println("integration: the cluster's logs are kept in", work)
		}
	}()
	if err := startCluster(); err != nil {
		return 1, err
	}
	if err := install(context.Background()); err != nil {
		return 1, err
	}
	if theController, err = startController(); err != nil {
		return 1, err
	}
	defer func() { theController.stop() }()
	return m.Run(), nil
}

func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(bin, name), args...)
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), "KUBECONFIG="+adminFile)
	return c
}

func startCluster() error {
	renderer, err := rendererImage()
	if err != nil {
		return err
	}
	start := command("devcluster", "start", "--state", state, "--image", "kiln-renderer="+renderer)
	out, err := start.Output()
	if err != nil {
		return fmt.Errorf("start the embedded cluster: %w", err)
	}
	adminFile = strings.TrimSpace(string(out))
	if adminConfig, err = clientcmd.BuildConfigFromFlags("", adminFile); err != nil {
		return fmt.Errorf("read the cluster's kubeconfig: %w", err)
	}
	adminConfig.QPS, adminConfig.Burst = 500, 1000
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kiln.AddToScheme(scheme)); err != nil {
		return err
	}
	if admin, err = client.New(adminConfig, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	clientset, err = kubernetes.NewForConfig(adminConfig)
	return err
}

// rendererImage builds the renderer that sleeps for packages whose name begins with "sleepy-".
func rendererImage() (string, error) {
	path := filepath.Join(work, "sleepyrenderer")
	build := exec.Command("go", "build", "-o", path, "./sleepyrenderer")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the renderer for tests: %w", err)
	}
	return path, nil
}

// install applies what a user's installation applies, but for the Deployment: tests start and kill the controller themselves.
func install(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-f", filepath.Join(repository, "config/manager/namespace.yaml")},
		{"apply", "--server-side", "-k", filepath.Join(repository, "config/crd")},
		{"apply", "-k", filepath.Join(repository, "config/rbac")},
		{"apply", "-k", filepath.Join(repository, "config/policy")},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/packagerevisions.kiln.dev", "crd/renderclasses.kiln.dev"},
	} {
		if err := command("kubectl", args...).Run(); err != nil {
			return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
		}
	}
	if err := waitPolicies(ctx); err != nil {
		return err
	}
	return writeControllerConfig(ctx)
}

// waitPolicies waits until policies refuse what they have to; they take effect a second or two after they are made.
func waitPolicies(ctx context.Context) error {
	published := &kiln.PackageRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "probe-"}}
	published.Spec.PackageName = "probe"
	published.Annotations = map[string]string{kiln.AnnotationRenderRequestedAt: "not ASCII: é"}
	probes := map[string]client.Object{
		"configmaps":       &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", Labels: map[string]string{kiln.LabelComponent: kiln.ComponentResult}}},
		"packagerevisions": published,
	}
	for what, probe := range probes {
		deadline := time.Now().Add(patience)
		for {
			err := admin.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
			if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the policy for %s does not take effect: %w", what, err)
			}
			time.Sleep(pollInterval)
		}
	}
	return nil
}

func controllerConfig() string { return filepath.Join(work, "controller.kubeconfig") }

// writeControllerConfig makes a kubeconfig for the controller's own account, so that its permissions are tried, too.
func writeControllerConfig(ctx context.Context) error {
	token, err := clientset.CoreV1().ServiceAccounts(controllerNamespace).CreateToken(ctx, controllerAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token for the controller: %w", err)
	}
	server := rest.CopyConfig(adminConfig)
	if err := rest.LoadTLSFiles(server); err != nil {
		return err
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: server.Host, CertificateAuthorityData: server.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"it": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"it": {Cluster: "it", AuthInfo: "it"}},
		CurrentContext: "it",
	}, controllerConfig())
}

// controllerProcess is a running kiln-controller.
type controllerProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func startController(args ...string) (*controllerProcess, error) {
	output, err := os.OpenFile(filepath.Join(work, "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	all := append([]string{
		"--renderer-image=kiln-renderer", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--v=1",
		"--leader-election-namespace=" + controllerNamespace, "--leader-elect-lease-duration=5s",
	}, args...)
	c := exec.Command(filepath.Join(bin, "kiln-controller"), all...)
	c.Env = append(os.Environ(), "KUBECONFIG="+controllerConfig())
	c.Stdout, c.Stderr = output, output
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	p := &controllerProcess{cmd: c, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = c.Wait() // A test ends it, or the tests notice that nothing renders; its log says why.
	}()
	return p, nil
}

// stop ends the controller as a rollout does, kill as a node that dies does.
func (p *controllerProcess) stop() { p.end(os.Interrupt) }
func (p *controllerProcess) kill() { p.end(os.Kill) }

func (p *controllerProcess) end(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	<-p.done
}

// replaceController starts a controller in place of one that a test has ended.
func replaceController(t *testing.T) {
	t.Helper()
	p, err := startController()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	theController = p
}

// namespace makes a namespace for one test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "it-"}}
	NewWithT(t).Expect(admin.Create(t.Context(), ns)).To(Succeed())
	t.Cleanup(func() {
		_ = admin.Delete(context.Background(), ns)
	})
	return ns.Name
}

// kubectl runs the real kubectl and returns what it printed, in the namespace given.
func kubectl(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	c := command("kubectl", append([]string{"--namespace", namespace}, args...)...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "kubectl %s: %s", strings.Join(args, " "), stderr.String())
	return string(out)
}
