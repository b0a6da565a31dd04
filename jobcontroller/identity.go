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

// ensureIdentity makes the renderer's identity in a namespace, when it is first needed.
func ensureIdentity(ctx context.Context, c client.Client, namespace string) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: rendererName, Labels: managedBy}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rendererName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: rendererName}},
	}
	for _, obj := range []client.Object{account, binding} {
		cached := obj.DeepCopyObject().(client.Object)
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), cached)
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("look for the renderer's %T: %w", obj, err)
		}
		if err := c.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the renderer's %T: %w", obj, err)
		}
	}
	return nil
}
