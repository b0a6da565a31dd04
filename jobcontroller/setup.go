package jobcontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

const (
	// After an error a revision waits for 5 ms, doubled up to half a minute: whatever is wrong, nobody should have to wait for
	// longer once it is right again.
	firstErrorDelay = 5 * time.Millisecond
	maxErrorDelay   = 30 * time.Second
	// passTimeout ends a pass that hangs; the API server's own limit for a request is one minute.
	passTimeout = 2 * time.Minute
)

// CacheOptions bound what the manager's cache holds: revisions without their contents, and of the other kinds only what
// Kiln made.
func CacheOptions() cache.Options {
	renders := labels.SelectorFromSet(labels.Set{kiln.LabelComponent: kiln.ComponentRender})
	ours := labels.SelectorFromSet(labels.Set(managedBy))
	published, err := labels.Parse(fmt.Sprintf("%s in (%s,%s)", kiln.LabelComponent, kiln.ComponentSnapshot, kiln.ComponentResult))
	if err != nil {
		panic(err) // The selector is a constant.
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&kiln.PackageRevision{}:  {Transform: StripContents},
			&batchv1.Job{}:           {Label: renders},
			&corev1.ServiceAccount{}: {Label: ours},
			&rbacv1.RoleBinding{}:    {Label: ours},
			configMapMeta():          {Label: published},
		},
	}
}

// Setup adds the controller to a manager whose client reads its own writes and whose cache is bounded by CacheOptions.
// workers are how many revisions are worked on at once.
func Setup(ctx context.Context, mgr ctrl.Manager, image string, workers int) error {
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("make a client without a cache: %w", err)
	}
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &batchv1.Job{}, indexOwner, controllerUID); err != nil {
		return fmt.Errorf("index Jobs by owner: %w", err)
	}
	if err := indexer.IndexField(ctx, configMapMeta(), indexJob, jobUID); err != nil {
		return fmt.Errorf("index ConfigMaps by Job: %w", err)
	}
	r := &Reconciler{
		Client:   mgr.GetClient(),
		Store:    &ObjectStore{Live: live, Writer: mgr.GetClient()},
		Executor: &JobExecutor{Client: mgr.GetClient(), Live: live, Clock: clock.RealClock{}, Image: image},
		Recorder: mgr.GetEventRecorder("kiln-controller"),
		Clock:    clock.RealClock{},
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("packagerevision").
		For(&kiln.PackageRevision{}, builder.WithPredicates(r.notingEdits(), changedForUs())).
		Owns(&batchv1.Job{}).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.revisionOfResult), builder.WithPredicates(isResult())).
		Watches(&kiln.RenderClass{}, handler.EnqueueRequestsFromMapFunc(r.revisionsWaitingFor(kiln.ReasonRenderClassNotFound))).
		Watches(&corev1.ResourceQuota{}, handler.EnqueueRequestsFromMapFunc(r.revisionsWaitingFor(kiln.ReasonQuotaExceeded))).
		Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(r.revisionsWaitingFor(kiln.ReasonRunning)), builder.WithPredicates(isDeletion())).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(r.revisionsWaitingFor(kiln.ReasonRunning, kiln.ReasonIdentityInvalid)), builder.WithPredicates(isChangeOrDeletion())).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.revisionsWaitingFor(kiln.ReasonQuotaExceeded)), builder.WithPredicates(isEndOfRender())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstErrorDelay, maxErrorDelay),
			ReconciliationTimeout:   passTimeout,
		}).
		Complete(r)
}

func configMapMeta() *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return meta
}

func controllerUID(obj client.Object) []string {
	if owner := metav1.GetControllerOf(obj); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

func jobUID(obj client.Object) []string {
	if uid := obj.GetLabels()[kiln.LabelJobUID]; uid != "" {
		return []string{uid}
	}
	return nil
}

// notingEdits remembers when contents were first seen, for the metrics. It lets everything pass.
func (r *Reconciler) notingEdits() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			if rev, ok := e.Object.(*kiln.PackageRevision); ok && rev.Status.Render == nil {
				r.memory.sawEdit(rev, r.Clock.Now())
			}
			return true
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, okBefore := e.ObjectOld.(*kiln.PackageRevision)
			after, okAfter := e.ObjectNew.(*kiln.PackageRevision)
			if okBefore && okAfter && !sameWork(before, after) {
				r.memory.sawEdit(after, r.Clock.Now())
			}
			return true
		},
	}
}

// sameWork says whether nothing changed that could call for a render.
func sameWork(before, after *kiln.PackageRevision) bool {
	return summaryOf(before).digest == summaryOf(after).digest && requestOf(before) == requestOf(after)
}

// changedForUs passes what can change a decision: not the controller's own status writes, nor labels.
func changedForUs() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, okBefore := e.ObjectOld.(*kiln.PackageRevision)
			after, okAfter := e.ObjectNew.(*kiln.PackageRevision)
			return !okBefore || !okAfter || before.UID != after.UID || before.Generation != after.Generation || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || requestOf(before) != requestOf(after)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return true },
	}
}

// isDeletion passes the renderer's identity going away: the renders that run need a new one.
func isDeletion() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// isChangeOrDeletion passes what can make the renderer's identity unsound, or sound again.
func isChangeOrDeletion() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion()
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// isEndOfRender passes Jobs that end or go: they may make room for one that a quota refused.
func isEndOfRender() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, okBefore := e.ObjectOld.(*batchv1.Job)
			after, okAfter := e.ObjectNew.(*batchv1.Job)
			return okBefore && okAfter && renderOf(before).State == RenderActive && renderOf(after).State != RenderActive
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// isResult passes results that appear. Everything else about ConfigMaps wakes nobody.
func isResult() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			return e.Object.GetLabels()[kiln.LabelComponent] == kiln.ComponentResult
		},
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// revisionOfResult finds the revision by the Job that owns the result. A Job that the cache does not have yet brings the
// revision up itself when it arrives.
func (r *Reconciler) revisionOfResult(ctx context.Context, obj client.Object) []reconcile.Request {
	for _, owner := range obj.GetOwnerReferences() {
		if owner.Kind != "Job" {
			continue
		}
		job := &batchv1.Job{}
		key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: owner.Name}
		if err := r.Client.Get(ctx, key, job, client.DisableReadYourWritesConsistency); err != nil || job.UID != owner.UID {
			return nil
		}
		if rev := metav1.GetControllerOf(job); rev != nil && rev.Kind == "PackageRevision" {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: rev.Name}}}
		}
	}
	return nil
}

// revisionsWaitingFor finds the revisions whose render waits for one of the reasons: in the object's namespace, or all for a
// cluster-scoped object.
func (r *Reconciler) revisionsWaitingFor(reasons ...string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		revisions := &kiln.PackageRevisionList{}
		if err := r.Client.List(ctx, revisions, client.InNamespace(obj.GetNamespace()), client.DisableReadYourWritesConsistency); err != nil {
			return nil
		}
		var waiting []reconcile.Request
		for i := range revisions.Items {
			rev := &revisions.Items[i]
			for _, c := range rev.Status.Conditions {
				if c.Type == kiln.ConditionRenderFinished && slices.Contains(reasons, c.Reason) {
					waiting = append(waiting, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rev)})
				}
			}
		}
		return waiting
	}
}
