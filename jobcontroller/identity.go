package jobcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rendererName names what the renderer needs to publish its results: the ServiceAccount and the RoleBinding in each
// namespace that renders, and the ClusterRole that config/rbac installs.
const rendererName = "kiln-renderer"

// managedBy labels the objects that Kiln makes for itself; the caches of their kinds hold no others.
var managedBy = client.MatchingLabels{"app.kubernetes.io/managed-by": "kiln"}

// identity are the objects that make up the renderer's identity in a namespace.
func identity(namespace string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: rendererName, Labels: managedBy}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rendererName},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: rendererName}},
		},
	}
}

// missing are the objects of the renderer's identity that the cache does not have.
func missing(ctx context.Context, c client.Client, namespace string) ([]client.Object, error) {
	var missing []client.Object
	for _, obj := range identity(namespace) {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object))
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, obj)
		case err != nil:
			return nil, fmt.Errorf("look for the renderer's %T: %w", obj, err)
		}
	}
	return missing, nil
}

// hasIdentity says whether the renderer has an identity that Kiln made.
func hasIdentity(ctx context.Context, c client.Client, namespace string) (bool, error) {
	objects, err := missing(ctx, c, namespace)
	return len(objects) == 0, err
}

// ensureIdentity makes the renderer's identity in a namespace, when it is first needed or has been deleted.
func ensureIdentity(ctx context.Context, c client.Client, namespace string) error {
	objects, err := missing(ctx, c, namespace)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the renderer's %T: %w", obj, err)
		}
	}
	return nil
}
