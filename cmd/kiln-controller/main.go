// Command kiln-controller renders PackageRevisions by Jobs.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/jobcontroller"
)

type flags struct {
	rendererImage  string
	workers        int
	metricsAddress string
	metricsSecure  bool
	healthAddress  string
	leaderElect    bool
	leaderElectNS  string
	leaseDuration  time.Duration
	qps            float64
	burst          int
	verbosity      int
	development    bool
}

func parseFlags() flags {
	var f flags
	flag.StringVar(&f.rendererImage, "renderer-image", "kiln-renderer", "The image that renders run.")
	flag.IntVar(&f.workers, "workers", 16, "How many PackageRevisions are worked on at once. Most of a pass is waiting for the API server.")
	flag.StringVar(&f.metricsAddress, "metrics-bind-address", ":8443", "Where to serve metrics; 0 for nowhere.")
	flag.BoolVar(&f.metricsSecure, "metrics-secure", true, "Serve metrics by TLS, to those only whom the API server authorizes for the path /metrics.")
	flag.StringVar(&f.healthAddress, "health-probe-bind-address", ":8081", "Where to serve /healthz and /readyz; 0 for nowhere.")
	flag.BoolVar(&f.leaderElect, "leader-elect", true, "Work only while holding the leader's lease.")
	flag.StringVar(&f.leaderElectNS, "leader-election-namespace", "", "The namespace of the lease; by default the one the controller runs in.")
	flag.DurationVar(&f.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long a dead leader's lease keeps others waiting. A leader that cannot renew it for two thirds of that time ends, so short ones need an API server that answers quickly.")
	flag.Float64Var(&f.qps, "kube-api-qps", 200, "The most requests per second to the API server, on average. Its own priority and fairness protects it.")
	flag.IntVar(&f.burst, "kube-api-burst", 400, "The most requests at once to the API server.")
	flag.IntVar(&f.verbosity, "v", 0, "How much to log: 0 for what an operator wants to know, 1 for every decision.")
	flag.BoolVar(&f.development, "log-development", false, "Log for people at a terminal instead of JSON.")
	flag.Parse()
	return f
}

func main() {
	f := parseFlags()
	zapLog, err := newZap(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kiln-controller:", err)
		os.Exit(1)
	}
	log := zapr.NewLogger(zapLog)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	if err := run(ctrl.SetupSignalHandler(), f); err != nil {
		log.Error(err, "The controller ends")
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register the Kubernetes types: %w", err)
	}
	if err := kiln.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register Kiln's types: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.Burst = float32(f.qps), f.burst
	config.UserAgent = "kiln-controller"

	metricsOptions := metricsserver.Options{BindAddress: f.metricsAddress, SecureServing: f.metricsSecure}
	if f.metricsSecure {
		metricsOptions.FilterProvider = filters.WithAuthenticationAndAuthorization
		metricsOptions.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:    scheme,
		Cache:     jobcontroller.CacheOptions(),
		NewClient: jobcontroller.NewPatchOnlyClient,
		Client:    client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:   metricsOptions,

		HealthProbeBindAddress:        f.healthAddress,
		LeaderElection:                f.leaderElect,
		LeaderElectionID:              "kiln-controller",
		LeaderElectionNamespace:       f.leaderElectNS,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(f.leaseDuration),
		RenewDeadline:                 ptr.To(f.leaseDuration * 2 / 3),
		RetryPeriod:                   ptr.To(f.leaseDuration / 6),
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	if err := jobcontroller.Setup(ctx, mgr, f.rendererImage, f.workers); err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	return mgr.Start(ctx)
}

func newZap(f flags) (*zap.Logger, error) {
	config := zap.NewProductionConfig()
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	config.Sampling = nil
	if f.development {
		config = zap.NewDevelopmentConfig()
	}
	config.Level = zap.NewAtomicLevelAt(zapcore.Level(-f.verbosity))
	config.DisableStacktrace = true
	logger, err := config.Build()
	if err != nil {
		return nil, fmt.Errorf("make the logger: %w", err)
	}
	return logger, nil
}
