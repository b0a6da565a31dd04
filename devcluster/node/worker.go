package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
)

// podWorker runs one pod from the moment it is bound to the node until its object is gone.
type podWorker struct {
	node                 *Node
	namespace, name, uid string
	log                  logr.Logger
	started              time.Time

	// stopping is closed when the containers have to end, see stop; deleting when the object has a deletion time; gone when
	// the object is no longer in the API.
	stopping, deleting, gone chan struct{}
	dirty                    chan struct{} // has a value while the status is due
	writing                  sync.Mutex
	published                *corev1.PodStatus // as last written; guarded by writing

	mounted     map[string]bool // by name of volume; only used before the containers run
	renewTokens *time.Time

	mu         sync.Mutex // guards all below
	latest     *corev1.Pod
	containers map[string]*corev1.ContainerStatus
	attempts   map[string]int32 // how often each container was started
	// sandboxReady: volumes are there. initialized: init containers are done. finished: no container runs any more.
	sandboxReady, initialized, initFailed, finished bool
	failure                                         *podFailure
	isStopping, isDeleting, isGone                  bool
	deadline                                        time.Time // when containers that still run are killed
	deadlineMoved                                   chan struct{}
	processes                                       map[string]*running
}

// podFailure is why the pod as a whole failed.
type podFailure struct{ reason, message string }

func newPodWorker(n *Node, pod *corev1.Pod) *podWorker {
	w := &podWorker{
		node: n, namespace: pod.Namespace, name: pod.Name, uid: string(pod.UID),
		log:      n.log.WithValues("pod", pod.Namespace+"/"+pod.Name),
		started:  time.Now(),
		stopping: make(chan struct{}), deleting: make(chan struct{}), gone: make(chan struct{}),
		dirty:     make(chan struct{}, 1),
		published: pod.Status.DeepCopy(),
		mounted:   map[string]bool{},
		latest:    pod, deadlineMoved: make(chan struct{}),
		containers: map[string]*corev1.ContainerStatus{},
		attempts:   map[string]int32{},
		processes:  map[string]*running{},
	}
	if pod.Status.StartTime != nil {
		w.started = pod.Status.StartTime.Time
	}
	waiting := reasonCreating
	if len(pod.Spec.InitContainers) > 0 {
		waiting = reasonInitializing
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			w.containers[list[i].Name] = &corev1.ContainerStatus{
				Name: list[i].Name, Image: list[i].Image, Started: ptr.To(false),
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}},
			}
		}
	}
	// What an earlier process of the node has reported, if it was restarted.
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if old := &list[i]; old.ContainerID != "" && w.containers[old.Name] != nil {
				w.containers[old.Name] = old.DeepCopy()
				w.attempts[old.Name] = old.RestartCount + 1
			}
		}
	}
	w.initialized = len(pod.Spec.InitContainers) == 0
	return w
}

func (w *podWorker) pod() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// observe takes note of a newer state of the pod's object: it may ask the pod to end, or to end sooner.
func (w *podWorker) observe(pod *corev1.Pod) {
	w.mu.Lock()
	w.latest = pod
	if pod.DeletionTimestamp != nil && !w.isDeleting {
		w.isDeleting = true
		close(w.deleting)
	}
	w.mu.Unlock()
	if pod.DeletionTimestamp == nil {
		return
	}
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 30)) * time.Second
	w.stop(nil, grace)
}

// stop asks all containers to end, and kills them when grace is over. A second call can only shorten the time left.
func (w *podWorker) stop(failure *podFailure, grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	deadline := time.Now().Add(grace)
	if w.isStopping && !deadline.Before(w.deadline) {
		return
	}
	w.deadline = deadline
	close(w.deadlineMoved)
	w.deadlineMoved = make(chan struct{})
	if w.isStopping {
		return
	}
	w.isStopping, w.failure = true, failure
	close(w.stopping)
}

// vanish is called when the object is gone from the API: whatever still runs is killed.
func (w *podWorker) vanish() {
	w.stop(nil, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isGone {
		w.isGone = true
		close(w.gone)
	}
}

// run is the pod's life.
func (w *podWorker) run(ctx context.Context) {
	stopPublishing, published := make(chan struct{}), make(chan struct{})
	go func() { defer close(published); w.publish(ctx, stopPublishing) }()

	if !isTerminal(w.pod()) {
		alive, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case <-w.stopping:
			case <-alive.Done():
			}
			cancel()
		}()
		w.live(alive)
		cancel()
		w.mu.Lock()
		w.finished = true
		w.mu.Unlock()
	}
	close(stopPublishing)
	<-published
	for w.finished && !w.writeStatus(ctx) && ctx.Err() == nil {
		pause(ctx, statusRetry)
	}
	w.awaitDeletion(ctx)
	w.cleanUp()
}

// live runs the containers until all have ended for good. alive is done when the pod has to stop.
func (w *podWorker) live(alive context.Context) {
	pod := w.pod()
	if d := pod.Spec.ActiveDeadlineSeconds; d != nil {
		timer := time.AfterFunc(time.Until(w.started.Add(time.Duration(*d)*time.Second)), func() {
			w.node.events.Event(pod, corev1.EventTypeNormal, reasonDeadline, messageDeadline)
			w.stop(&podFailure{reasonDeadline, messageDeadline}, gracePeriod(pod))
		})
		defer timer.Stop()
	}
	if w.wasRunningBefore(pod) {
		return
	}
	w.changed()
	if !w.prepareVolumes(alive, pod) {
		return
	}
	w.mu.Lock()
	w.sandboxReady = true
	w.mu.Unlock()
	go w.refreshVolumes(alive, pod)
	w.runContainers(alive, pod)
}

// wasRunningBefore deals with a pod an earlier process of the node had started: its containers ended with that process.
// They are started again if the pod's restart policy allows that; the pod fails otherwise.
func (w *podWorker) wasRunningBefore(pod *corev1.Pod) (failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, status := range w.containers {
		if w.attempts[name] == 0 {
			continue
		}
		failed = pod.Spec.RestartPolicy == corev1.RestartPolicyNever
		if status.State.Terminated == nil {
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: reasonUnknown, Message: messageUnknown, ExitCode: 137, ContainerID: status.ContainerID,
			}}
		}
		status.Ready, status.Started = false, ptr.To(false)
	}
	return failed
}

// prepareVolumes mounts the volumes. While something is missing it looks again as soon as that appears.
func (w *podWorker) prepareVolumes(alive context.Context, pod *corev1.Pod) bool {
	begin := time.Now()
	for reported := ""; ; {
		err := w.mountVolumes(alive, pod)
		switch {
		case alive.Err() != nil:
			return false
		case err == nil:
			return true
		case apierrors.IsForbidden(err) && time.Since(begin) < authorizerLag:
			// The API server lets a node read what its pods use, as soon as it has noticed them.
			pause(alive, authorizerPoll)
			continue
		case err.Error() != reported:
			reported = err.Error()
			w.node.events.Event(pod, corev1.EventTypeWarning, "FailedMount", reported)
		}
		w.awaitMissing(alive, err)
	}
}

const authorizerLag, authorizerPoll = 2 * time.Second, 5 * time.Millisecond

// mountRetry is how long to wait for what cannot be watched for.
const mountRetry = time.Second

// awaitMissing returns when the ConfigMap or Secret err speaks of has changed, or after a while.
func (w *podWorker) awaitMissing(ctx context.Context, err error) {
	timeout := mountRetry
	changes := make(<-chan struct{})
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil {
		details := status.Status().Details
		found, stop := w.appearance(ctx, details.Kind, details.Name)
		defer stop()
		changes = found
	}
	select {
	case <-ctx.Done():
	case <-changes:
	case <-time.After(timeout):
	}
}

// appearance returns a channel that gets a value when the object exists.
func (w *podWorker) appearance(ctx context.Context, kind, name string) (found <-chan struct{}, stop func()) {
	result := make(chan struct{}, 1)
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	watching, cancel := context.WithCancel(ctx)
	open := w.node.client.CoreV1().ConfigMaps(w.namespace).Watch
	if kind == "secrets" {
		open = w.node.client.CoreV1().Secrets(w.namespace).Watch
	} else if kind != "configmaps" {
		return result, cancel
	}
	watcher, err := open(watching, options)
	if err != nil {
		return result, cancel
	}
	go func() {
		defer watcher.Stop()
		select {
		case <-watching.Done():
		case <-watcher.ResultChan(): // also what exists when the watch begins
			result <- struct{}{}
		}
	}()
	return result, cancel
}

// awaitDeletion removes the object once its deletion was asked for.
func (w *podWorker) awaitDeletion(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-w.gone:
		return
	case <-w.deleting:
	}
	options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(w.uid)}
	for ctx.Err() == nil {
		err := w.node.client.CoreV1().Pods(w.namespace).Delete(ctx, w.name, options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			break
		}
		w.log.Error(err, "Removing the ended pod failed, trying again")
		pause(ctx, statusRetry)
	}
	// A finalizer may keep the object for a while.
	select {
	case <-ctx.Done():
	case <-w.gone:
	}
}

func (w *podWorker) cleanUp() {
	for _, root := range []string{w.node.podsDir, w.node.memoryDir} {
		dir := filepath.Join(root, w.uid)
		unmountBelow(dir)
		if err := os.RemoveAll(dir); err != nil {
			w.log.Error(err, "Removing the pod's files failed")
		}
	}
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	return time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
