package node

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec"
)

// runInContainer serves kubectl exec.
func (n *Node) runInContainer(ctx context.Context, namespace, podName, containerName string, command []string, streams api.AttachIO) error {
	w := n.find(namespace, podName)
	if w == nil {
		return errdefs.NotFoundf("pod %q not found on this node", namespace+"/"+podName)
	}
	w.mu.Lock()
	r := w.processes[containerName]
	w.mu.Unlock()
	if r == nil {
		return errdefs.NotFoundf("container %q of pod %q is not running", containerName, podName)
	}
	var exitCode int
	var err error
	if streams.TTY() {
		exitCode, err = r.execWithTerminal(ctx, command, streams)
	} else {
		exitCode, err = r.process.Exec(ctx, *r.spec, command, streams.Stdin(), streams.Stdout(), streams.Stderr(), false)
	}
	if err != nil {
		return fmt.Errorf("run %q in container %q: %w", command, containerName, err)
	}
	if exitCode != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", exitCode), Code: exitCode}
	}
	return nil
}

// execWithTerminal gives the command a terminal, and connects that with the streams.
func (r *running) execWithTerminal(ctx context.Context, command []string, streams api.AttachIO) (exitCode int, err error) {
	master, slave, err := openTerminal()
	if err != nil {
		return 0, err
	}
	defer func() { _ = master.Close() }()
	go func() {
		for size := range streams.Resize() {
			_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
		}
	}()
	go func() { _, _ = io.Copy(master, streams.Stdin()) }()
	copied := make(chan struct{})
	go func() { defer close(copied); _, _ = io.Copy(streams.Stdout(), master) }()
	exitCode, err = r.process.Exec(ctx, *r.spec, command, slave, slave, slave, true)
	_ = slave.Close()
	<-copied // reading the master fails once no slave is open
	return exitCode, err
}

func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("set up a terminal: %w", err)
	}
	return master, slave, nil
}
