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

const (
	// publishPatience is how long the API server may be out of reach before the pod gives up and leaves it to another one.
	publishPatience = 30 * time.Second
	// The pauses between tries grow from the first to the last.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// ToCluster publishes a result in the cluster that the pod runs in, as the pod's ServiceAccount.
func ToCluster(ctx context.Context, publisher bundle.Publisher, result *bundle.Result) error {
	configMaps, err := bundle.ResultConfigMaps(publisher, result)
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	client, err := clientOf(config)
	if err != nil {
		return err
	}
	for _, configMap := range configMaps {
		if err := create(ctx, client, configMap, publishPatience); err != nil {
			return fmt.Errorf("create ConfigMap %s: %w", configMap.Name, err)
		}
	}
	return nil
}

// clientOf makes a client that knows the core types only: a whole clientset costs the process more time at its start than the
// pipeline takes.
func clientOf(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the core types: %w", err)
	}
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf // A third smaller than JSON for binary data.
	config.UserAgent = "kiln-renderer"
	config.QPS = -1 // A large result is two dozen writes, and then never another one.
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

// create retries what may pass, as long as patience lasts. The name has the pod's UID in it: an object that exists already is
// this pod's if the answer to an earlier try got lost, and otherwise a stranger's, who is not to be trusted with it.
func create(ctx context.Context, client *rest.RESTClient, configMap *corev1.ConfigMap, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	mayExist := false
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := client.Post().Namespace(configMap.Namespace).Resource("configmaps").Body(configMap).Do(ctx).Error()
		switch {
		case err == nil, apierrors.IsAlreadyExists(err) && mayExist:
			return nil
		case !passes(err):
			return err
		}
		mayExist = mayExist || !apierrors.IsForbidden(err) && !apierrors.IsTooManyRequests(err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait.Jitter(pause, 0.2)):
		}
	}
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
