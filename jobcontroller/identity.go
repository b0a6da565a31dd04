package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// missing are the objects of the renderer's identity that the cache does not have. It fails with ErrIdentity if one that it
// has is not what Kiln made.
func missing(ctx context.Context, c client.Reader, namespace string) ([]client.Object, error) {
	var missing []client.Object
	for _, want := range identity(namespace) {
		have := want.DeepCopyObject().(client.Object)
		err := c.Get(ctx, client.ObjectKeyFromObject(want), have)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, want)
		case err != nil:
			return nil, fmt.Errorf("look for the renderer's %T: %w", want, err)
		case !serves(have, want):
			return nil, identityError(namespace)
		}
	}
	return missing, nil
}

// serves says whether an object that has the name of a part of the identity does what that part is for. Any ServiceAccount does.
func serves(have, want client.Object) bool {
	binding, ok := have.(*rbacv1.RoleBinding)
	if !ok {
		return true
	}
	made := want.(*rbacv1.RoleBinding)
	return binding.RoleRef == made.RoleRef && slices.Contains(binding.Subjects, made.Subjects[0])
}

func identityError(namespace string) error {
	return fmt.Errorf("%w: RoleBinding %s in namespace %s does not bind the ServiceAccount %s to the ClusterRole %s; delete it, and Kiln makes it anew",
		ErrIdentity, rendererName, namespace, rendererName, rendererName)
}

// hasIdentity says whether the renderer has an identity that Kiln made.
func hasIdentity(ctx context.Context, c client.Reader, namespace string) (bool, error) {
	objects, err := missing(ctx, c, namespace)
	if errors.Is(err, ErrIdentity) {
		return false, nil
	}
	return len(objects) == 0, err
}

// ensureIdentity makes the renderer's identity in a namespace, when it is first needed or has been deleted. It fails with
// ErrIdentity if somebody made one that does not serve.
func (e *JobExecutor) ensureIdentity(ctx context.Context, namespace string) error {
	objects, err := missing(ctx, e.Client, namespace)
	if err != nil {
		return err
	}
	for _, want := range objects {
		err := e.Client.Create(ctx, want)
		if apierrors.IsAlreadyExists(err) {
			// It lacks Kiln's label, so the cache does not have it.
			have := want.DeepCopyObject().(client.Object)
			if err := e.Live.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
				return fmt.Errorf("look for the renderer's %T: %w", want, err)
			}
			if !serves(have, want) {
				return identityError(namespace)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("create the renderer's %T: %w", want, err)
		}
	}
	return nil
}
