package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/util/pod"
	"k8s.io/utils/ptr"
)

// Reasons and messages a kubelet uses.
const (
	reasonCreating      = "ContainerCreating"
	reasonInitializing  = "PodInitializing"
	reasonUnknown       = "ContainerStatusUnknown"
	messageUnknown      = "The container could not be located when the pod was terminated"
	reasonDeadline      = "DeadlineExceeded"
	messageDeadline     = "Pod was active on the node longer than the specified deadline"
	conditionReadyStart = corev1.PodReadyToStartContainers
)

// changed marks the status as due. It never blocks.
func (w *podWorker) changed() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// publish writes the pod's status whenever it has changed, until stop is closed. Changes that come while a write is under way
// are written together. A write that was begun is finished: whether an aborted one has happened could not be known.
func (w *podWorker) publish(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-w.dirty:
		}
		if w.writeStatus(ctx) {
			continue
		}
		w.changed()
		select {
		case <-ctx.Done():
		case <-stop:
		case <-time.After(statusRetry):
		}
	}
}

// statusRetry is the pause after a write of the status that failed, while the API server restarts for instance.
const statusRetry = 200 * time.Millisecond

// writeStatus brings the API's status up to date; false asks for another try.
func (w *podWorker) writeStatus(ctx context.Context) bool {
	w.writing.Lock()
	defer w.writing.Unlock()
	desired := w.status()
	updated, _, _, err := podutil.PatchPodStatus(ctx, w.node.client, w.namespace, w.name, w.pod().UID, *w.published, *desired)
	switch {
	case err == nil:
		w.published = desired
		if updated != nil {
			w.observe(updated)
		}
		return true
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return true // gone, or replaced by a namesake: nobody is left to be told
	}
	w.log.Error(err, "Writing the pod's status failed, trying again")
	return false
}

// status computes the status from what the containers do.
func (w *podWorker) status() *corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod, s := w.latest, w.published.DeepCopy()
	s.ObservedGeneration = pod.Generation
	if s.StartTime == nil {
		s.StartTime = ptr.To(metav1.NewTime(w.started))
	}
	s.HostIP, s.PodIP = nodeIP, nodeIP
	s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: nodeIP}}, []corev1.PodIP{{IP: nodeIP}}
	s.InitContainerStatuses = w.containerStatuses(pod.Spec.InitContainers)
	s.ContainerStatuses = w.containerStatuses(pod.Spec.Containers)
	switch {
	case w.finished:
		s.Phase = w.terminalPhase(s)
	case len(w.processes) > 0 && w.initialized:
		// A phase that says the pod has ended would be a lie while a sidecar still runs.
		if s.Phase = w.phase(pod, s); s.Phase != corev1.PodPending {
			s.Phase = corev1.PodRunning
		}
	default:
		s.Phase = w.phase(pod, s)
	}
	if w.failure != nil {
		s.Reason, s.Message = w.failure.reason, w.failure.message
	}
	w.setConditions(pod, s)
	return s
}

func (w *podWorker) containerStatuses(containers []corev1.Container) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for i := range containers {
		status := w.containers[containers[i].Name].DeepCopy()
		if w.finished && status.State.Terminated == nil && (w.initialized || status.ContainerID != "") {
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: reasonUnknown, Message: messageUnknown, ExitCode: 137,
			}}
			status.Ready, status.Started = false, ptr.To(false)
		}
		list = append(list, *status)
	}
	return list
}

// phase follows the rules of a kubelet for a pod that has not ended.
func (w *podWorker) phase(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodPhase {
	if w.initFailed {
		return corev1.PodFailed
	}
	if !w.initialized {
		return corev1.PodPending
	}
	var running, waiting, stopped, succeeded int
	for i := range s.ContainerStatuses {
		switch c := &s.ContainerStatuses[i]; {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil:
			stopped++
			if c.State.Terminated.ExitCode == 0 {
				succeeded++
			}
		case c.LastTerminationState.Terminated != nil:
			stopped++
		default:
			waiting++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case running > 0, pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case stopped == succeeded:
		return corev1.PodSucceeded
	case pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
		return corev1.PodFailed
	default:
		return corev1.PodRunning
	}
}

// terminalPhase is the phase of a pod none of whose containers will run again.
func (w *podWorker) terminalPhase(s *corev1.PodStatus) corev1.PodPhase {
	if w.failure != nil || !w.initialized {
		return corev1.PodFailed
	}
	for i := range s.ContainerStatuses {
		if terminated := s.ContainerStatuses[i].State.Terminated; terminated == nil || terminated.ExitCode != 0 {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

func (w *podWorker) setConditions(pod *corev1.Pod, s *corev1.PodStatus) {
	terminal := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	var unready []string
	for i := range s.ContainerStatuses {
		if !s.ContainerStatuses[i].Ready {
			unready = append(unready, s.ContainerStatuses[i].Name)
		}
	}
	initialized := condition(corev1.PodInitialized, w.initialized, "ContainersNotInitialized", "containers with incomplete status: init containers")
	if s.Phase == corev1.PodSucceeded {
		initialized.Reason = "PodCompleted"
	}
	reason, message := "ContainersNotReady", "containers with unready status: "+quoteList(unready)
	switch {
	case s.Phase == corev1.PodSucceeded:
		reason, message = "PodCompleted", ""
	case s.Phase == corev1.PodFailed:
		reason, message = "PodFailed", ""
	}
	ready := len(unready) == 0 && !terminal && w.initialized
	for _, c := range []corev1.PodCondition{
		condition(conditionReadyStart, w.sandboxReady && !terminal, "", ""),
		initialized,
		condition(corev1.PodReady, ready, reason, message),
		condition(corev1.ContainersReady, ready, reason, message),
	} {
		c.ObservedGeneration = pod.Generation
		setCondition(s, c)
	}
}

func condition(kind corev1.PodConditionType, value bool, reason, message string) corev1.PodCondition {
	if value {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

func setCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	for i := range s.Conditions {
		old := &s.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		c.LastTransitionTime = old.LastTransitionTime
		if old.Status != c.Status {
			c.LastTransitionTime = metav1.Now()
		}
		*old = c
		return
	}
	c.LastTransitionTime = metav1.Now()
	s.Conditions = append(s.Conditions, c)
}

func quoteList(names []string) string {
	list := "["
	for i, name := range names {
		if i > 0 {
			list += " "
		}
		list += name
	}
	return list + "]"
}
