package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Process is a container that runs.
type Process struct {
	cmd *exec.Cmd
	// Stdout and Stderr end when everything in the container has ended.
	Stdout, Stderr io.ReadCloser
}

// Start starts the program of spec. When it returns without an error, the program has been started.
func Start(spec Spec) (*Process, error) {
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = specWrite.Close() }()
	errorRead, errorWrite, err := os.Pipe()
	if err != nil {
		_ = specRead.Close()
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = errorRead.Close() }()

	cmd := exec.Command("/proc/self/exe", InitArg)
	cmd.ExtraFiles = []*os.File{specRead, errorWrite}
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	p := &Process{cmd: cmd}
	if p.Stdout, err = cmd.StdoutPipe(); err == nil {
		p.Stderr, err = cmd.StderrPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	_ = specRead.Close()
	_ = errorWrite.Close()
	if err != nil {
		return nil, fmt.Errorf("start the container's process: %w", err)
	}
	if err := json.NewEncoder(specWrite).Encode(spec); err != nil {
		p.Kill()
		return nil, errors.Join(fmt.Errorf("hand over the container's specification: %w", err), cmd.Wait())
	}
	_ = specWrite.Close()
	var failure Failure
	switch err := json.NewDecoder(errorRead).Decode(&failure); {
	case errors.Is(err, io.EOF): // closed by the start of the program
		return p, nil
	case err != nil:
		failure.Message = err.Error()
	}
	_ = cmd.Wait() // its exit code says nothing beyond the failure
	return nil, errors.New(failure.Message)
}

// PID is the program's process ID as the node sees it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the program. As PID 1 it gets only those it has a handler for, and SIGKILL.
func (p *Process) Signal(signal syscall.Signal) { _ = p.cmd.Process.Signal(signal) }

// Kill ends the program, and with it all it started.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL) }

// Wait returns the exit code (128 plus the signal's number after a signal) once Stdout and Stderr were read to their ends and
// everything in the container has ended.
func (p *Process) Wait() (exitCode int) {
	_ = p.cmd.Wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}
