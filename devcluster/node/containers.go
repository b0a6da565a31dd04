package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kiln-dev/kiln/devcluster/internal/container"
)

// running is a container's process together with what has to be known to end it.
type running struct {
	process *container.Process
	spec    *container.Spec
	ended   chan struct{}
	failed  chan string // gets the reason when a probe or a hook wants the container's end
	log     string
}

// runContainers runs the init containers in their order, then the others together, and returns when all have ended for good.
func (w *podWorker) runContainers(alive context.Context, pod *corev1.Pod) {
	sidecars, endSidecars := context.WithCancel(context.Background())
	var sidecarsDone sync.WaitGroup
	defer sidecarsDone.Wait()
	defer endSidecars()
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			started := make(chan struct{})
			sidecarsDone.Go(func() {
				w.runContainer(alive, sidecars, pod, c, func(int) bool { return true }, started)
			})
			select {
			case <-started:
			case <-alive.Done():
				return
			}
			continue
		}
		again := func(exitCode int) bool { return exitCode != 0 && pod.Spec.RestartPolicy != corev1.RestartPolicyNever }
		if exitCode, ended := w.runContainer(alive, nil, pod, c, again, nil); !ended || exitCode != 0 {
			w.mu.Lock()
			w.initFailed = ended
			w.mu.Unlock()
			return
		}
	}
	w.mu.Lock()
	w.initialized = true
	w.mu.Unlock()
	w.changed()

	again := func(exitCode int) bool {
		return pod.Spec.RestartPolicy == corev1.RestartPolicyAlways ||
			pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && exitCode != 0
	}
	var done sync.WaitGroup
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		done.Go(func() { w.runContainer(alive, nil, pod, c, again, nil) })
	}
	done.Wait()
}

// runContainer runs one container until it ends and again says no. It returns ended false if the container never ran to
// an end because the pod had to stop. A sidecar is asked to end when its context is done; started is closed once it runs.
func (w *podWorker) runContainer(alive, sidecar context.Context, pod *corev1.Pod, c *corev1.Container, again func(int) bool, started chan struct{}) (exitCode int, ended bool) {
	if sidecar == nil {
		sidecar = context.Background()
	}
	for delay := time.Duration(0); ; {
		image, ok := w.awaitImage(alive, pod, c)
		if !ok {
			return exitCode, ended
		}
		spec, ok := w.awaitSpec(alive, pod, c, image)
		if !ok {
			return exitCode, ended
		}
		exitCode, ended = w.runOnce(sidecar, pod, c, image, spec, started), true
		started = nil
		if alive.Err() != nil || sidecar.Err() != nil || !again(exitCode) {
			return exitCode, ended
		}
		if !w.backOff(alive, sidecar, pod, c, delay) {
			return exitCode, ended
		}
		delay = min(max(2*delay, w.node.restartBackoff), maxBackoff)
	}
}

// maxBackoff bounds the pause between restarts of a container and between pulls of an image.
const maxBackoff = 5 * time.Minute

// backOff waits before a container is restarted. The first restart comes at once, as with a kubelet.
func (w *podWorker) backOff(alive, sidecar context.Context, pod *corev1.Pod, c *corev1.Container, delay time.Duration) bool {
	if delay == 0 {
		return true
	}
	name := fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
	w.setWaiting(c, "CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, c.Name, name))
	w.containerEvent(pod, c, corev1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, name))
	select {
	case <-alive.Done():
		return false
	case <-sidecar.Done():
		return false
	case <-time.After(delay):
		return true
	}
}

// awaitImage looks the image up, and waits for it to be mapped if it is not.
func (w *podWorker) awaitImage(alive context.Context, pod *corev1.Pod, c *corev1.Container) (*Image, bool) {
	image, err := lookUpImage(w.node.imagesFile, c.Image)
	if err == nil {
		w.containerEvent(pod, c, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine", c.Image))
		return image, true
	}
	if c.ImagePullPolicy == corev1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		w.setWaiting(c, "ErrImageNeverPull", message)
		w.containerEvent(pod, c, corev1.EventTypeWarning, "ErrImageNeverPull", message)
		return w.pollImage(alive, c, maxBackoff)
	}
	for delay := imageBackoff; ; delay = min(2*delay, maxBackoff) {
		w.containerEvent(pod, c, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
		w.containerEvent(pod, c, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
		w.containerEvent(pod, c, corev1.EventTypeWarning, "Failed", "Error: ErrImagePull")
		w.setWaiting(c, "ErrImagePull", err.Error())
		select {
		case <-alive.Done():
			return nil, false
		case <-time.After(imagePoll):
		}
		w.containerEvent(pod, c, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.Image))
		w.containerEvent(pod, c, corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff")
		w.setWaiting(c, "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %v", c.Image, err))
		image, found := w.pollImage(alive, c, delay)
		if found || alive.Err() != nil {
			if found {
				w.containerEvent(pod, c, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q", c.Image))
			}
			return image, found
		}
	}
}

const (
	imageBackoff = 10 * time.Second
	imagePoll    = 500 * time.Millisecond
)

// pollImage looks for the image until it is mapped, for as long as limit.
func (w *podWorker) pollImage(alive context.Context, c *corev1.Container, limit time.Duration) (*Image, bool) {
	timeout := time.After(limit)
	for {
		select {
		case <-alive.Done():
			return nil, false
		case <-timeout:
			return nil, false
		case <-time.After(imagePoll):
		}
		if image, err := lookUpImage(w.node.imagesFile, c.Image); err == nil {
			return image, true
		}
	}
}

// awaitSpec computes what to start, and waits for what is missing for that.
func (w *podWorker) awaitSpec(alive context.Context, pod *corev1.Pod, c *corev1.Container, image *Image) (*container.Spec, bool) {
	for reported := ""; ; {
		spec, err := w.containerSpec(alive, pod, c, image)
		if alive.Err() != nil {
			return nil, false
		}
		if err == nil {
			return spec, true
		}
		if err.Error() != reported {
			reported = err.Error()
			w.setWaiting(c, "CreateContainerConfigError", reported)
			w.containerEvent(pod, c, corev1.EventTypeWarning, "Failed", "Error: "+reported)
		}
		w.awaitMissing(alive, err)
	}
}

// runOnce starts the container and returns its exit code when it has ended.
func (w *podWorker) runOnce(sidecar context.Context, pod *corev1.Pod, c *corev1.Container, image *Image, spec *container.Spec, started chan struct{}) int {
	id := newContainerID()
	attempt := w.beginAttempt(c, id, image)
	dir := w.containerDir(c)
	logs, err := openLog(w.logPath(c.Name, attempt))
	if err != nil {
		return w.startFailed(pod, c, id, err)
	}
	defer logs.Close()
	if err := prepareContainerDir(dir, spec); err != nil {
		return w.startFailed(pod, c, id, err)
	}
	w.containerEvent(pod, c, corev1.EventTypeNormal, "Created", "Container created")
	process, err := container.Start(*spec)
	if err != nil {
		return w.startFailed(pod, c, id, err)
	}
	startedAt := time.Now()
	r := &running{process: process, spec: spec, ended: make(chan struct{}), failed: make(chan string, 1), log: w.logPath(c.Name, attempt)}
	w.setRunning(c, r, startedAt)
	w.containerEvent(pod, c, corev1.EventTypeNormal, "Started", "Container started")
	if started != nil {
		close(started)
	}
	go w.endOnRequest(sidecar, pod, c, r)
	go w.attend(pod, c, r)

	logs.copy(process)
	exitCode := process.Wait()
	close(r.ended)
	w.setTerminated(c, exitCode, &corev1.ContainerStateTerminated{
		ExitCode: int32(exitCode), Reason: exitReason(exitCode), ContainerID: id,
		StartedAt: metav1.NewTime(startedAt), FinishedAt: metav1.Now(),
		Message: terminationMessage(c, filepath.Join(dir, terminationLog), r.log, exitCode),
	})
	return exitCode
}

// startExitCode is the exit code of a container whose program could not be started.
const startExitCode = 128

func (w *podWorker) startFailed(pod *corev1.Pod, c *corev1.Container, id string, err error) int {
	message := "failed to start container: " + err.Error()
	w.containerEvent(pod, c, corev1.EventTypeWarning, "Failed", "Error: "+message)
	w.setTerminated(c, startExitCode, &corev1.ContainerStateTerminated{
		ExitCode: startExitCode, Reason: "StartError", Message: message, ContainerID: id,
		FinishedAt: metav1.Now(),
	})
	return startExitCode
}

// endOnRequest ends a container when the pod has to stop, or a probe or hook says so: politely first, by force when the time
// is over.
func (w *podWorker) endOnRequest(sidecar context.Context, pod *corev1.Pod, c *corev1.Container, r *running) {
	why := "Stopping container " + c.Name
	own := time.Time{} // a deadline of this container alone
	select {
	case <-r.ended:
		return
	case why = <-r.failed:
		own = time.Now().Add(gracePeriod(pod))
	case <-sidecar.Done():
		own = time.Now().Add(gracePeriod(pod))
	case <-w.stopping:
	}
	w.containerEvent(pod, c, corev1.EventTypeNormal, "Killing", why)
	polite, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		w.preStop(polite, pod, c, r)
		r.process.Signal(sigterm)
	}()
	for {
		w.mu.Lock()
		deadline, moved := w.deadline, w.deadlineMoved
		w.mu.Unlock()
		if !own.IsZero() && (deadline.IsZero() || own.Before(deadline)) {
			deadline = own
		}
		select {
		case <-r.ended:
			return
		case <-moved:
		case <-time.After(time.Until(deadline)):
			r.process.Kill()
			return
		}
	}
}

func exitReason(exitCode int) string {
	if exitCode == 0 {
		return "Completed"
	}
	return "Error"
}

func newContainerID() string {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	return "devcluster://" + hex.EncodeToString(id)
}

// update changes a container's status and has it written.
func (w *podWorker) update(c *corev1.Container, change func(*corev1.ContainerStatus)) {
	w.mu.Lock()
	change(w.containers[c.Name])
	w.mu.Unlock()
	w.changed()
}

func (w *podWorker) setWaiting(c *corev1.Container, reason, message string) {
	w.update(c, func(s *corev1.ContainerStatus) {
		retire(s)
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	})
}

// retire makes an ended run the last one.
func retire(s *corev1.ContainerStatus) {
	if s.State.Terminated != nil {
		s.LastTerminationState = corev1.ContainerState{Terminated: s.State.Terminated}
		s.State = corev1.ContainerState{}
	}
}

// beginAttempt returns how often the container was started before.
func (w *podWorker) beginAttempt(c *corev1.Container, id string, image *Image) (attempt int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.containers[c.Name]
	retire(s)
	s.ContainerID, s.ImageID = id, w.node.imageID(image)
	s.RestartCount = w.attempts[c.Name]
	w.attempts[c.Name]++
	return s.RestartCount
}

func (w *podWorker) setRunning(c *corev1.Container, r *running, at time.Time) {
	w.update(c, func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}
		s.Started = ptr.To(c.StartupProbe == nil)
		s.Ready = c.StartupProbe == nil && c.ReadinessProbe == nil
		w.processes[c.Name] = r
	})
}

func (w *podWorker) setTerminated(c *corev1.Container, exitCode int, terminated *corev1.ContainerStateTerminated) {
	w.update(c, func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Terminated: terminated}
		s.Started = ptr.To(false)
		// An init container that has done its work counts as ready.
		s.Ready = exitCode == 0 && !w.initialized
		delete(w.processes, c.Name)
	})
}

// errRunsAsRoot is a kubelet's answer to runAsNonRoot with a user that is root.
var errRunsAsRoot = errors.New("container has runAsNonRoot and image will run as root")
