package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
	"k8s.io/utils/ptr"
)

// maxProbeOutput bounds what is kept of a probe's output.
const maxProbeOutput = 10 << 10

// attend runs the hook and the probes of a container that was started, until it ends.
func (w *podWorker) attend(pod *corev1.Pod, c *corev1.Container, r *running) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-r.ended
		cancel()
	}()
	if !w.postStart(ctx, pod, c, r) {
		return
	}
	if c.StartupProbe != nil {
		if !w.watchProbe(ctx, pod, c, r, "Startup", c.StartupProbe, func(healthy bool) bool { return !healthy }) {
			return
		}
		w.update(c, func(s *corev1.ContainerStatus) { s.Started, s.Ready = ptr.To(true), c.ReadinessProbe == nil })
	}
	if c.LivenessProbe != nil {
		go w.watchProbe(ctx, pod, c, r, "Liveness", c.LivenessProbe, func(bool) bool { return true })
	}
	if c.ReadinessProbe != nil {
		w.watchProbe(ctx, pod, c, r, "Readiness", c.ReadinessProbe, func(healthy bool) bool {
			w.update(c, func(s *corev1.ContainerStatus) { s.Ready = healthy && s.State.Running != nil })
			return true
		})
	}
	<-ctx.Done()
}

// watchProbe runs a probe until the container ends, until verdict, which is told whenever the thresholds say something, wants no
// more, or until a failure ends the container. It returns true in the second case.
func (w *podWorker) watchProbe(ctx context.Context, pod *corev1.Pod, c *corev1.Container, r *running, kind string, p *corev1.Probe, verdict func(healthy bool) bool) bool {
	wait := time.Duration(p.InitialDelaySeconds) * time.Second
	for successes, failures := int32(0), int32(0); ; wait = time.Duration(p.PeriodSeconds) * time.Second {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		healthy, output := w.probe(ctx, c, r, p)
		if ctx.Err() != nil {
			return false
		}
		if healthy {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
			w.containerEvent(pod, c, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %s", kind, output))
		}
		switch {
		case successes >= max(p.SuccessThreshold, 1):
			if !verdict(true) {
				return true
			}
		case failures >= max(p.FailureThreshold, 1):
			if kind != "Readiness" {
				r.fail(fmt.Sprintf("Container %s failed %s probe, will be restarted", c.Name, strings.ToLower(kind)))
				return false
			}
			verdict(false)
		}
	}
}

// fail asks for the container's end.
func (r *running) fail(why string) {
	select {
	case r.failed <- why:
	default: // that was asked for already
	}
}

func (w *podWorker) probe(ctx context.Context, c *corev1.Container, r *running, p *corev1.Probe) (healthy bool, output string) {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	var result probe.Result
	var err error
	switch {
	case p.Exec != nil:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var code int
		output, code, err = r.output(ctx, p.Exec.Command)
		if result = probe.Success; code != 0 {
			result = probe.Failure
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("command timed out after %s", timeout)
		}
	case p.HTTPGet != nil:
		var request *http.Request
		if request, err = httpprobe.NewRequestForHTTPGetAction(p.HTTPGet, c, nodeIP, "probe"); err == nil {
			result, output, err = httpprobe.New(false).Probe(request, timeout)
		}
	case p.TCPSocket != nil:
		var port int
		if port, err = resolvePort(p.TCPSocket.Port, c); err == nil {
			result, output, err = tcpprobe.New().Probe(orNodeIP(p.TCPSocket.Host), port, timeout)
		}
	case p.GRPC != nil:
		result, output, err = grpcprobe.New().Probe(nodeIP, ptr.Deref(p.GRPC.Service, ""), int(p.GRPC.Port), timeout, grpcprobe.ProbeOptions{})
	}
	if err != nil {
		return false, err.Error()
	}
	return result == probe.Success || result == probe.Warning, output
}

// output runs a command in the container and returns what it prints.
func (r *running) output(ctx context.Context, command []string) (text string, exitCode int, err error) {
	var out bytes.Buffer
	exitCode, err = r.process.Exec(ctx, *r.spec, command, nil, &out, &out, false)
	return string(out.Next(maxProbeOutput)), exitCode, err
}

func resolvePort(port intstr.IntOrString, c *corev1.Container) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	number, err := strconv.Atoi(port.StrVal)
	if err != nil {
		return 0, fmt.Errorf("container %s has no port named %q", c.Name, port.StrVal)
	}
	return number, nil
}

func orNodeIP(host string) string {
	if host == "" {
		return nodeIP
	}
	return host
}

// postStart runs the hook of that name; its failure ends the container.
func (w *podWorker) postStart(ctx context.Context, pod *corev1.Pod, c *corev1.Container, r *running) bool {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return true
	}
	if err := r.hook(ctx, c, c.Lifecycle.PostStart); err != nil && ctx.Err() == nil {
		w.log.Error(err, "A postStart hook failed", "container", c.Name)
		w.containerEvent(pod, c, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		r.fail("FailedPostStartHook")
		return false
	}
	return true
}

// preStop runs the hook of that name; its failure changes nothing.
func (w *podWorker) preStop(ctx context.Context, pod *corev1.Pod, c *corev1.Container, r *running) {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return
	}
	if err := r.hook(ctx, c, c.Lifecycle.PreStop); err != nil && ctx.Err() == nil {
		w.log.Error(err, "A preStop hook failed", "container", c.Name)
		w.containerEvent(pod, c, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

func (r *running) hook(ctx context.Context, c *corev1.Container, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		output, code, err := r.output(ctx, h.Exec.Command)
		if err == nil && code != 0 {
			err = fmt.Errorf("command exited with %d: %s", code, output)
		}
		return err
	case h.Sleep != nil:
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		}
		return nil
	case h.HTTPGet != nil:
		request, err := httpprobe.NewRequestForHTTPGetAction(h.HTTPGet, c, nodeIP, "lifecycle")
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request.WithContext(ctx))
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	return errors.New("this kind of hook is not supported by the node of devcluster")
}
