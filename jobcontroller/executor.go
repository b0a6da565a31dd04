package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

// The indexes that JobExecutor reads the cache by; Setup makes them.
const (
	// indexOwner finds Jobs by the UID of the PackageRevision that controls them.
	indexOwner = "kiln.dev/owner"
	// indexJob finds the metadata of snapshots and results by the UID of their Job.
	indexJob = "kiln.dev/job"
)

// maxNamesakes bounds how many names Start passes over.
const maxNamesakes = 5

// JobExecutor runs every render as a Job with one pod, which finds its snapshot in a ConfigMap and publishes its result in
// others. All of them belong to the Job and go with it.
type JobExecutor struct {
	// Client reads Jobs and the metadata of ConfigMaps from the cache.
	Client client.Client
	// Live reads and writes without the cache.
	Live  client.Client
	Clock clock.PassiveClock
	// Image is the renderer's.
	Image string
}

var _ Executor = &JobExecutor{}

// Renders implements Executor.
func (e *JobExecutor) Renders(ctx context.Context, rev *kiln.PackageRevision, expected string) ([]Render, error) {
	jobs := &batchv1.JobList{}
	if err := e.Client.List(ctx, jobs, client.InNamespace(rev.Namespace), client.MatchingFields{indexOwner: string(rev.UID)}); err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	if expected != "" && !slices.ContainsFunc(jobs.Items, func(j batchv1.Job) bool { return j.Name == expected }) {
		job := batchv1.Job{}
		err := e.Live.Get(ctx, types.NamespacedName{Namespace: rev.Namespace, Name: expected}, &job)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("look for Job %s: %w", expected, err)
		}
		if err == nil && metav1.IsControlledBy(&job, rev) {
			jobs.Items = append(jobs.Items, job)
		}
	}
	var renders []Render
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if !job.DeletionTimestamp.IsZero() {
			continue
		}
		render := renderOf(job)
		if err := e.addObjects(ctx, &render); err != nil {
			return nil, err
		}
		renders = append(renders, render)
	}
	return renders, nil
}

// addObjects finds a render's snapshot and results. When it is over without a result in the cache, the API server is
// asked: the Job's end may have overtaken the result on the way here.
func (e *JobExecutor) addObjects(ctx context.Context, render *Render) error {
	objects := configMapMetadata()
	if err := e.Client.List(ctx, objects, client.InNamespace(render.Namespace), client.MatchingFields{indexJob: string(render.UID)}); err != nil {
		return fmt.Errorf("list the ConfigMaps of Job %s: %w", render.Name, err)
	}
	render.take(objects.Items)
	if render.Supplied && render.State == RenderActive {
		present, err := hasIdentity(ctx, e.Client, render.Namespace)
		if err != nil {
			return err
		}
		render.Supplied = present
	}
	if render.State == RenderActive || len(render.Results) > 0 {
		return nil
	}
	live := configMapMetadata()
	if err := e.Live.List(ctx, live, client.InNamespace(render.Namespace), client.MatchingLabels{kiln.LabelJobUID: string(render.UID)}); err != nil {
		return fmt.Errorf("look for results of Job %s: %w", render.Name, err)
	}
	render.take(live.Items)
	return nil
}

func (r *Render) take(objects []metav1.PartialObjectMetadata) {
	slices.SortStableFunc(objects, func(a, b metav1.PartialObjectMetadata) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, obj := range objects {
		switch obj.Labels[kiln.LabelComponent] {
		case kiln.ComponentSnapshot:
			r.Supplied = r.Supplied || obj.Name == r.Name
		case kiln.ComponentResult:
			r.Results = append(r.Results, StoredResult{
				Namespace:    obj.Namespace,
				Name:         obj.Name,
				UID:          obj.UID,
				OutputDigest: obj.Annotations[kiln.AnnotationOutputDigest],
			})
		}
	}
}

func configMapMetadata() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	return list
}

func renderOf(job *batchv1.Job) Render {
	attempt, _ := strconv.Atoi(job.Annotations[annotationAttempt])
	render := Render{
		Namespace:   job.Namespace,
		Name:        job.Name,
		UID:         job.UID,
		InputDigest: job.Annotations[kiln.AnnotationInputDigest],
		Request:     job.Annotations[annotationRequest],
		Attempt:     int32(attempt),
		Created:     job.CreationTimestamp.Time,
		State:       RenderActive,
	}
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			render.State, render.Ended, render.Succeeded = RenderEnded, c.LastTransitionTime.Time, true
		case batchv1.JobFailed:
			render.State, render.Ended, render.Why = RenderEnded, c.LastTransitionTime.Time, strings.TrimSuffix(c.Message, ".")
			if c.Reason == batchv1.JobReasonDeadlineExceeded {
				render.State = RenderDeadline
			}
		}
	}
	return render
}

// newestFirst orders renders by creation and, within a second, by attempt.
func newestFirst(a, b Render) int {
	if c := b.Created.Compare(a.Created); c != 0 {
		return c
	}
	return int(b.Attempt - a.Attempt)
}

// Start implements Executor.
func (e *JobExecutor) Start(ctx context.Context, order Order) (Render, error) {
	if err := e.ensureIdentity(ctx, order.Revision.Namespace); err != nil {
		return Render{}, refusal(err)
	}
	// A namesake that is being deleted is a cancelled render of the same generation; its name is not used again, nor is one
	// that a stranger has taken.
	var err error
	for last := order.Attempt + maxNamesakes; order.Attempt <= last; order.Attempt++ {
		job := renderJob(order, e.Image)
		existing := &batchv1.Job{}
		// A create that the API server refuses because of the name can charge the quota all the same: look first.
		err = e.Live.Get(ctx, client.ObjectKeyFromObject(job), existing)
		if apierrors.IsNotFound(err) {
			err = e.create(ctx, job)
			if err == nil {
				render := renderOf(job)
				render.Created = e.Clock.Now()
				return render, nil
			}
			if !apierrors.IsAlreadyExists(err) {
				return Render{}, refusal(fmt.Errorf("create Job %s: %w", job.Name, err))
			}
			err = e.Live.Get(ctx, client.ObjectKeyFromObject(job), existing)
		}
		switch {
		case err != nil:
			return Render{}, fmt.Errorf("look for Job %s: %w", job.Name, err)
		case !metav1.IsControlledBy(existing, order.Revision):
			err = fmt.Errorf("%w: Job %s is not Kiln's; delete it", ErrNameTaken, job.Name)
		case existing.DeletionTimestamp.IsZero():
			return renderOf(existing), nil // A predecessor died right after creating it.
		default:
			err = fmt.Errorf("%w: Job %s is being deleted", ErrNameTaken, job.Name)
		}
	}
	return Render{}, err
}

// create creates a Job. Ended ones count against count/jobs.batch, too: when that quota refuses, the oldest one in the
// namespace that has been harvested goes, and its place is taken.
func (e *JobExecutor) create(ctx context.Context, job *batchv1.Job) error {
	err := e.Client.Create(ctx, job)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") || !strings.Contains(err.Error(), "count/jobs.batch") {
		return err
	}
	oldest, lookErr := e.oldestHarvested(ctx, job.Namespace)
	if lookErr != nil || oldest == nil {
		return errors.Join(err, lookErr)
	}
	if err := e.Cancel(ctx, *oldest); err != nil {
		return fmt.Errorf("remove Job %s to make room: %w", oldest.Name, err)
	}
	return e.Client.Create(ctx, job)
}

// oldestHarvested is the render in a namespace that ended first of those whose revision waits for nothing from them; nil if
// there is none.
func (e *JobExecutor) oldestHarvested(ctx context.Context, namespace string) (*Render, error) {
	jobs := &batchv1.JobList{}
	if err := e.Client.List(ctx, jobs, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	revisions := &kiln.PackageRevisionList{}
	if err := e.Client.List(ctx, revisions, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list PackageRevisions: %w", err)
	}
	awaited := map[string]bool{}
	for _, rev := range revisions.Items {
		if at := rev.Status.Render; at != nil && !isOver(at.Phase) {
			awaited[at.JobUID] = true
		}
	}
	var oldest *Render
	for i := range jobs.Items {
		render := renderOf(&jobs.Items[i])
		if render.State == RenderActive || awaited[string(render.UID)] || !jobs.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		if oldest == nil || render.Ended.Before(oldest.Ended) {
			oldest = &render
		}
	}
	return oldest, nil
}

// refusal names the kinds of refusal that the rest of the controller knows.
func refusal(err error) error {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("%w: %w", ErrClosing, err)
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return fmt.Errorf("%w: %w", ErrQuota, err)
	}
	return err
}

// Supply implements Executor.
func (e *JobExecutor) Supply(ctx context.Context, render Render, files map[string]string) error {
	snapshot, err := bundle.SnapshotConfigMap(bundle.Job{Namespace: render.Namespace, Name: render.Name, UID: render.UID}, render.InputDigest, files)
	if err != nil {
		return fmt.Errorf("pack the snapshot: %w", err)
	}
	if err := e.ensureIdentity(ctx, render.Namespace); err != nil {
		return refusal(err)
	}
	err = e.Live.Create(ctx, snapshot)
	if !apierrors.IsAlreadyExists(err) {
		return refusal(err)
	}
	existing := &corev1.ConfigMap{}
	if err := e.Live.Get(ctx, client.ObjectKeyFromObject(snapshot), existing); err != nil {
		return fmt.Errorf("look for ConfigMap %s: %w", snapshot.Name, err)
	}
	if existing.Labels[kiln.LabelJobUID] != string(render.UID) {
		return fmt.Errorf("%w: ConfigMap %s is not Kiln's; delete it", ErrNameTaken, snapshot.Name)
	}
	return nil
}

// Cancel implements Executor. The UID keeps it from a namesake; Background, unlike the default for Jobs, takes the pods along.
func (e *JobExecutor) Cancel(ctx context.Context, render Render) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: render.Namespace, Name: render.Name}}
	err := e.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &render.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // It is gone, or another one has its name.
	}
	return err
}

// Fetch implements Executor.
func (e *JobExecutor) Fetch(ctx context.Context, render Render, stored StoredResult) (*bundle.Result, error) {
	index := &corev1.ConfigMap{}
	err := e.Live.Get(ctx, types.NamespacedName{Namespace: stored.Namespace, Name: stored.Name}, index)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: it is gone", ErrNotAResult)
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", stored.Name, err)
	}
	x, err := bundle.IndexOf(index)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAResult, err)
	}
	if x.JobUID != string(render.UID) || x.InputDigest != render.InputDigest {
		return nil, fmt.Errorf("%w: it is about Job %s (%s) and the contents %s", ErrNotAResult, x.Job, x.JobUID, x.InputDigest)
	}
	if err := e.checkWriter(ctx, render, x); err != nil {
		return nil, err
	}
	var chunks []*corev1.ConfigMap
	for _, chunk := range x.Chunks {
		configMap := &corev1.ConfigMap{}
		err := e.Live.Get(ctx, types.NamespacedName{Namespace: stored.Namespace, Name: chunk.Name}, configMap)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: chunk %s is missing", ErrNotAResult, chunk.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("read ConfigMap %s: %w", chunk.Name, err)
		}
		chunks = append(chunks, configMap)
	}
	result, err := bundle.ResultOf(index, chunks, bundle.DefaultLimits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAResult, err)
	}
	return result, nil
}

// checkWriter makes sure that the pod which the index names is one of the render's.
func (e *JobExecutor) checkWriter(ctx context.Context, render Render, index *bundle.Index) error {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := e.Live.Get(ctx, types.NamespacedName{Namespace: render.Namespace, Name: index.Pod}, pod)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for pod %s: %w", index.Pod, err)
	}
	owner := metav1.GetControllerOf(pod)
	if err != nil || string(pod.UID) != index.PodUID || owner == nil || owner.UID != render.UID {
		return fmt.Errorf("%w: pod %s (%s), which it says it is from, is not one of Job %s", ErrNotAResult, index.Pod, index.PodUID, render.Name)
	}
	return nil
}
