package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/devcluster/cluster"
)

// process is one component.
type process struct {
	name       string
	args       []string
	namespaces uintptr
	log        string
	lock       *os.File

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when the current run has ended
	exit  string        // how it ended
}

// start runs the component. It is killed when the supervisor dies.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer func() { _ = output.Close() }()
	cmd := exec.Command("/proc/self/exe", p.args...)
	cmd.Stdout, cmd.Stderr = output, output
	// A component only has to keep the lock open: it is free again when the supervisor and every component have ended, however
	// they ended.
	cmd.ExtraFiles = []*os.File{p.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Cloneflags: p.namespaces}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.exit = cmd, ended, ""
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exit = "ended"
		if err != nil {
			p.exit = err.Error()
		}
		close(ended)
	}()
	return nil
}

// stop asks the component to end, and kills it after grace.
func (p *process) stop(grace time.Duration) {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-ended:
		return
	case <-time.After(grace):
	}
	p.kill()
}

// kill ends the component at once, without a chance to clean up.
func (p *process) kill() {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill() // fails only if it has ended
		<-ended
	}
}

// state describes the component for people and programs.
func (p *process) state() cluster.Component {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := cluster.Component{Name: p.name, Running: p.cmd != nil && p.exit == "", Exit: p.exit}
	if p.cmd != nil {
		c.PID = p.cmd.Process.Pid
	}
	return c
}
