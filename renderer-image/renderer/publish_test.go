package renderer

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "kiln-result-pod-uid"}}

func TestPublishingGivesUpWhenPatienceEnds(t *testing.T) {
	g := NewWithT(t)
	client, err := clientOf(&rest.Config{Host: "http://" + unusedAddress(t)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(create(t.Context(), client, configMap, 150*time.Millisecond)).To(MatchError(ContainSubstring("connection refused")))
}

func TestPublishingTriesAgainUntilItIsCancelled(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	ended := make(chan struct{})
	go func() { // An API server that dies as soon as it is reached.
		defer close(ended)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connection.Close()
			if tries++; tries == 3 {
				cancel()
			}
		}
	}()
	client, err := clientOf(&rest.Config{Host: "http://" + listener.Addr().String()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(create(ctx, client, configMap, time.Hour)).NotTo(Succeed())
	listener.Close()
	<-ended
	g.Expect(tries).To(BeNumerically(">=", 3))
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}

func TestErrorsThatMayPass(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	terminating := apierrors.NewForbidden(configMaps, "x", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a binding that is not seen yet":       {apierrors.NewForbidden(configMaps, "x", errors.New("no access")), true},
		"too many requests":                    {apierrors.NewTooManyRequests("wait", 1), true},
		"the API server is shutting down":      {apierrors.NewServiceUnavailable("bye"), true},
		"etcd has no leader":                   {apierrors.NewInternalError(errors.New("no leader")), true},
		"a bad gateway":                        {apierrors.NewGenericServerResponse(http.StatusBadGateway, "POST", configMaps, "x", "", 0, true), true},
		"the namespace is going":               {terminating, false},
		"the object is invalid":                {apierrors.NewBadRequest("no"), false},
		"the object is too large":              {apierrors.NewRequestEntityTooLargeError("no"), false},
		"the token is not accepted":            {apierrors.NewUnauthorized("no"), false},
		"a stranger's object has the name":     {apierrors.NewAlreadyExists(configMaps, "x"), false},
		"something that is no network's error": {errors.New("x"), false},
	} {
		NewWithT(t).Expect(passes(test.err)).To(Equal(test.want), name)
	}
}
