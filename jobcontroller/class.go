package jobcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// What a render gets where no RenderClass says otherwise; the API's documentation of RenderClass repeats it.
const (
	defaultActiveDeadlineSeconds   int64 = 600
	defaultBackoffLimit            int32 = 1
	defaultTTLSecondsAfterFinished int32 = 3600
	defaultSuccessfulHistory       int32 = 3
	defaultFailedHistory           int32 = 1
)

var (
	defaultRequests = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	defaultLimits = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1"),
		corev1.ResourceMemory: resource.MustParse("512Mi"),
	}
)

// classOf is the RenderClass that a revision asks for, or else the default one, or else Kiln's own. It is nil when the
// revision names one that does not exist.
func classOf(ctx context.Context, c client.Reader, rev *kiln.PackageRevision) (*kiln.RenderClassSpec, error) {
	if name := ptr.Deref(rev.Spec.RenderClassName, ""); name != "" {
		class := &kiln.RenderClass{}
		err := c.Get(ctx, types.NamespacedName{Name: name}, class)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read RenderClass %q: %w", name, err)
		}
		return &class.Spec, nil
	}
	classes := &kiln.RenderClassList{}
	if err := c.List(ctx, classes); err != nil {
		return nil, fmt.Errorf("list RenderClasses: %w", err)
	}
	var chosen *kiln.RenderClass
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.Annotations[kiln.AnnotationDefaultRenderClass] != "true" {
			continue
		}
		// Of several default classes the newest counts, as for StorageClasses.
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) ||
			chosen.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < chosen.Name {
			chosen = class
		}
	}
	if chosen == nil {
		return &kiln.RenderClassSpec{}, nil
	}
	return &chosen.Spec, nil
}

// resourcesOf are the class's resources, with the defaults filled in. A default never contradicts what the class sets: a
// default request is lowered to the class's limit, a default limit raised to the class's request.
func resourcesOf(class *kiln.RenderClassSpec) corev1.ResourceRequirements {
	set := ptr.Deref(class.Resources, kiln.RenderResources{})
	requests, limits := set.Requests.DeepCopy(), set.Limits.DeepCopy()
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	if limits == nil {
		limits = corev1.ResourceList{}
	}
	for name, quantity := range defaultRequests {
		if _, ok := requests[name]; ok {
			continue
		}
		if limit, ok := limits[name]; ok && limit.Cmp(quantity) < 0 {
			quantity = limit
		}
		requests[name] = quantity
	}
	for name, quantity := range defaultLimits {
		if _, ok := limits[name]; ok {
			continue
		}
		if request, ok := requests[name]; ok && request.Cmp(quantity) > 0 {
			quantity = request
		}
		limits[name] = quantity
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}
