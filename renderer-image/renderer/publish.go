package renderer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

// publishPatience is how long the API server may be out of reach before the pod gives up and leaves it to another one.
const publishPatience = 30 * time.Second

// ToCluster publishes a result in the cluster that the pod runs in, as the pod's ServiceAccount.
func ToCluster(ctx context.Context, publisher bundle.Publisher, result *bundle.Result) error {
	configMaps, err := bundle.ResultConfigMaps(publisher, result)
	if err != nil {
		return err
	}
	client, err := clusterClient()
	if err != nil {
		return err
	}
	for _, configMap := range configMaps {
		if err := create(ctx, client, configMap); err != nil {
			return fmt.Errorf("create ConfigMap %s: %w", configMap.Name, err)
		}
	}
	return nil
}

// clusterClient knows ConfigMaps only: a whole clientset costs the process more time at its start than the pipeline takes.
func clusterClient() (*rest.RESTClient, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the core types: %w", err)
	}
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf // A third smaller than JSON for binary data.
	config.UserAgent = "kiln-renderer"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

// create retries what may pass. The name has the pod's UID in it: an object that exists already is this pod's, made by a try
// whose answer got lost.
func create(ctx context.Context, client *rest.RESTClient, configMap *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, publishPatience)
	defer cancel()
	var last error
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 12, Cap: 5 * time.Second}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		last = client.Post().Namespace(configMap.Namespace).Resource("configmaps").Body(configMap).Do(ctx).Error()
		switch {
		case last == nil, apierrors.IsAlreadyExists(last):
			last = nil
			return true, nil
		case passes(last):
			return false, nil
		}
		return false, last
	})
	if last != nil {
		return last
	}
	return err
}

// passes says whether an error may go away by itself. That the API server forbids it can be a binding that it has not seen
// yet, made a moment ago with the namespace's first render.
func passes(err error) bool {
	if apierrors.IsForbidden(err) {
		return !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	}
	if apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) {
		return true
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	var netErr net.Error
	return errors.As(err, &netErr) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}
