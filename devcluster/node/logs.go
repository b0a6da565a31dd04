package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/utils/ptr"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/kiln-dev/kiln/devcluster/internal/container"
)

const (
	// maxLogBytes bounds one run's log; what comes after that is dropped, with a last line that says so.
	maxLogBytes = 10 << 20
	// maxLineBytes is where a longer line is split into parts, as container runtimes do.
	maxLineBytes = 16 << 10

	maxMessageBytes      = 4096
	maxFallbackBytes     = 2048
	maxFallbackLines     = 80
	criTimeFormat        = time.RFC3339Nano
	logTruncatedSentence = "devcluster: this log has reached its limit; the rest is dropped"
)

// logPath is where the output of one run of a container is kept, in the format of the container runtime interface.
func (w *podWorker) logPath(containerName string, attempt int32) string {
	return filepath.Join(w.node.podsDir, w.uid, "logs", containerName, strconv.Itoa(int(attempt))+".log")
}

// logFile is the log of one run.
type logFile struct {
	mu      sync.Mutex
	file    *os.File
	written int
	full    bool
}

func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for logs: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	return &logFile{file: file}, nil
}

// Close closes the file. Writing never fails a container, and neither does this.
func (l *logFile) Close() { _ = l.file.Close() }

// copy writes the process's output to the log until both streams have ended.
func (l *logFile) copy(p *container.Process) {
	var both sync.WaitGroup
	both.Go(func() { l.copyStream("stdout", p.Stdout) })
	both.Go(func() { l.copyStream("stderr", p.Stderr) })
	both.Wait()
}

func (l *logFile) copyStream(name string, stream io.Reader) {
	for reader := bufio.NewReaderSize(stream, maxLineBytes); ; {
		line, err := reader.ReadSlice('\n')
		tag := "F"
		if len(line) > 0 && line[len(line)-1] != '\n' {
			tag = "P" // the rest of a long line follows, or never
		}
		if len(line) > 0 {
			l.writeLine(name, tag, bytes.TrimSuffix(line, []byte("\n")))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *logFile) writeLine(stream, tag string, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return
	}
	if l.written += len(line); l.written > maxLogBytes {
		l.full = true
		tag, line = "F", []byte(logTruncatedSentence)
	}
	// A log that cannot be written must not stop the container, as with any runtime.
	_, _ = fmt.Fprintf(l.file, "%s %s %s %s\n", time.Now().UTC().Format(criTimeFormat), stream, tag, line)
}

// terminationMessage is what an ended container has to say: its termination log, or the end of its output if so asked.
func terminationMessage(c *corev1.Container, file, log string, exitCode int) string {
	message := readHead(file, maxMessageBytes)
	if message != "" || exitCode == 0 || c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return message
	}
	var out bytes.Buffer
	options := &logs.LogOptions{TailLines: ptr.To[int64](maxFallbackLines)}
	if err := logs.ReadLogs(context.Background(), log, "", options, nil, &out, &out); err != nil {
		return ""
	}
	tail := out.Bytes()
	if len(tail) > maxFallbackBytes {
		tail = tail[len(tail)-maxFallbackBytes:]
	}
	return string(tail)
}

func readHead(path string, limit int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	head, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return ""
	}
	return string(head)
}

// containerLogs serves kubectl logs.
func (n *Node) containerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	w := n.find(namespace, podName)
	if w == nil {
		return nil, errdefs.NotFoundf("pod %q not found on this node", namespace+"/"+podName)
	}
	w.mu.Lock()
	status, run := w.containers[containerName].DeepCopy(), w.attempts[containerName]-1
	w.mu.Unlock()
	if status == nil {
		return nil, errdefs.NotFoundf("container %q not found in pod %q", containerName, podName)
	}
	if opts.Previous {
		run--
	}
	switch {
	case run < 0 && opts.Previous:
		return nil, errdefs.InvalidInputf("previous terminated container %q in pod %q not found", containerName, podName)
	case run < 0 && status.State.Waiting != nil:
		return nil, errdefs.InvalidInputf("container %q in pod %q is waiting to start: %s", containerName, podName, status.State.Waiting.Reason)
	case run < 0:
		return nil, errdefs.NotFoundf("container %q in pod %q was never started", containerName, podName)
	}
	options := &logs.LogOptions{Follow: opts.Follow, Timestamp: opts.Timestamps, Since: opts.SinceTime}
	if opts.Tail > 0 {
		options.TailLines = ptr.To(int64(opts.Tail))
	}
	if opts.LimitBytes > 0 {
		options.LimitBytes = ptr.To(int64(opts.LimitBytes))
	}
	if opts.SinceSeconds > 0 {
		options.Since = time.Now().Add(-time.Duration(opts.SinceSeconds) * time.Second)
	}
	read, write := io.Pipe()
	go func() {
		runtime := &logRuntime{worker: w, container: containerName}
		err := logs.ReadLogs(ctx, w.logPath(containerName, run), status.ContainerID, options, runtime, write, write)
		write.CloseWithError(err)
	}()
	return read, nil
}

// logRuntime answers the one question the log reader has for a container runtime: does the container still run?
type logRuntime struct {
	internalapi.RuntimeService
	worker    *podWorker
	container string
}

func (r *logRuntime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.worker.mu.Lock()
	defer r.worker.mu.Unlock()
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if s := r.worker.containers[r.container]; s.ContainerID == id && s.State.Terminated == nil {
		state = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, State: state}}, nil
}
