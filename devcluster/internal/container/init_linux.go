package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// init takes over before the packages of Kubernetes are initialised, which would cost every container 50 ms. It stays on the
// main thread, because that thread's credentials are the program's.
func init() {
	if len(os.Args) < 2 || os.Args[1] != InitArg {
		return
	}
	runtime.LockOSThread()
	report := os.NewFile(errorFD, "errors")
	unix.CloseOnExec(errorFD)
	err := becomeProgram(os.NewFile(specFD, "spec"))
	// The node reads the failure; if it is gone, there is nobody to tell.
	_ = json.NewEncoder(report).Encode(Failure{Message: err.Error()})
	os.Exit(128)
}

func becomeProgram(specFile *os.File) error {
	var spec Spec
	if err := json.NewDecoder(specFile).Decode(&spec); err != nil {
		return fmt.Errorf("read the container's specification: %w", err)
	}
	if err := specFile.Close(); err != nil {
		return fmt.Errorf("close the container's specification: %w", err)
	}
	unix.Umask(0) // permissions below are meant as they are written
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := buildRoot(&spec); err != nil {
		return fmt.Errorf("build the root file system: %w", err)
	}
	unix.Umask(0o022)
	workingDir := spec.WorkingDir
	if workingDir == "" {
		workingDir = "/"
	}
	if err := os.MkdirAll(workingDir, 0o755); err != nil {
		return fmt.Errorf("make the working folder: %w", err)
	}
	if err := os.Chdir(workingDir); err != nil {
		return fmt.Errorf("enter the working folder: %w", err)
	}
	if spec.ReadOnlyRoot {
		if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	if err := dropPrivileges(&spec); err != nil {
		return err
	}
	path, err := lookUp(&spec)
	if err != nil {
		return err
	}
	return fmt.Errorf("exec %q: %w", spec.Args[0], unix.Exec(path, spec.Args, spec.Env))
}

// lookUp finds the program to run as a shell would, with the container's PATH.
func lookUp(spec *Spec) (string, error) {
	name := spec.Args[0]
	if name == filepath.Base(spec.Program) {
		return spec.Program, nil
	}
	if strings.Contains(name, "/") {
		if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) && filepath.Base(name) == filepath.Base(spec.Program) {
			return spec.Program, nil
		}
		return name, nil
	}
	for _, entry := range spec.Env {
		path, found := strings.CutPrefix(entry, "PATH=")
		if !found {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			candidate := filepath.Join(dir, name)
			if unix.Access(candidate, unix.X_OK) == nil {
				return candidate, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}
