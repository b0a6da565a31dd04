package container

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ExecArg is the first argument that makes the binary run one more program in a container.
const ExecArg = "devcluster-container-exec"

// execRequest is what the process started with ExecArg is told.
type execRequest struct {
	Spec    Spec
	Command []string
}

// Exec runs command in the container of p as spec's user, and returns its exit code. A command that cannot be started is
// an error. When ctx is done first, the command is killed. With a terminal, stdin, stdout and stderr are that terminal's file.
func (p *Process) Exec(ctx context.Context, spec Spec, command []string, stdin io.Reader, stdout, stderr io.Writer, terminal bool) (exitCode int, err error) {
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = specWrite.Close() }()
	errorRead, errorWrite, err := os.Pipe()
	if err != nil {
		_ = specRead.Close()
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = errorRead.Close() }()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", ExecArg, fmt.Sprint(p.PID()))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.ExtraFiles = []*os.File{specRead, errorWrite}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = stdin, stdout, stderr, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true, Setctty: terminal}
	err = cmd.Start()
	_ = specRead.Close()
	_ = errorWrite.Close()
	if err != nil {
		return 0, fmt.Errorf("start the process that enters the container: %w", err)
	}
	if err := json.NewEncoder(specWrite).Encode(execRequest{spec, command}); err != nil {
		_ = cmd.Process.Kill()
	}
	_ = specWrite.Close()
	var failure Failure
	failed := json.NewDecoder(errorRead).Decode(&failure) == nil
	_ = cmd.Wait()
	if failed {
		return 0, fmt.Errorf("%s", failure.Message)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// init takes over as the one in init_linux.go does.
func init() {
	if len(os.Args) < 3 || os.Args[1] != ExecArg {
		return
	}
	runtime.LockOSThread()
	report := os.NewFile(errorFD, "errors")
	unix.CloseOnExec(errorFD)
	exitCode, err := enterAndRun(os.Args[2], os.NewFile(specFD, "spec"))
	if err != nil {
		// The node reads the failure; if it is gone, there is nobody to tell.
		_ = json.NewEncoder(report).Encode(Failure{Message: err.Error()})
	}
	os.Exit(exitCode)
}

func enterAndRun(pid string, requestFile *os.File) (exitCode int, err error) {
	var request execRequest
	if err := json.NewDecoder(requestFile).Decode(&request); err != nil {
		return startFailure, fmt.Errorf("read what to run: %w", err)
	}
	_ = requestFile.Close()
	if err := enter(pid); err != nil {
		return startFailure, err
	}
	spec := &request.Spec
	if !spec.Privileged {
		if err := limitCapabilities(allowedCapabilities(spec)); err != nil {
			return startFailure, err
		}
	}
	if spec.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return startFailure, fmt.Errorf("forbid new privileges: %w", err)
		}
	}
	spec.Args = request.Command
	path, err := lookUp(spec)
	if err != nil {
		return startFailure, err
	}
	credential := &syscall.Credential{Uid: uint32(spec.UID), Gid: uint32(spec.GID)}
	for _, group := range spec.Groups {
		credential.Groups = append(credential.Groups, uint32(group))
	}
	cmd := &exec.Cmd{
		Path: path, Args: spec.Args, Env: spec.Env, Dir: spec.WorkingDir,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		// No Pdeathsig: package syscall would take the parent, which is outside the PID namespace, for dead.
		SysProcAttr: &syscall.SysProcAttr{Credential: credential},
	}
	if err := cmd.Start(); err != nil {
		return startFailure, fmt.Errorf("exec %q: %w", spec.Args[0], err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		_ = cmd.Process.Kill()
	}()
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// startFailure is the exit code of a command that could not be started.
const startFailure = 126

// enter moves the thread into the namespaces of the process; children are born in its PID namespace.
func enter(pid string) error {
	var id int
	if _, err := fmt.Sscan(pid, &id); err != nil {
		return fmt.Errorf("read the process ID %q: %w", pid, err)
	}
	fd, err := unix.PidfdOpen(id, 0)
	if err != nil {
		return fmt.Errorf("find the container's process: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// A thread that shares its root and working folder with others may not change its mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("detach the thread: %w", err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("enter the container's namespaces: %w", err)
	}
	return nil
}
