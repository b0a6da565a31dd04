package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// terminate asks the supervisor to end its cluster. The process ID comes from a file, so it is only believed if that process
// has the cluster's lock open.
func terminate(pid int, l Layout) {
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return
	}
	lock, err := filepath.EvalSymlinks(l.lock())
	if err != nil {
		return
	}
	for _, fd := range descriptors {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if err == nil && strings.TrimSuffix(target, " (deleted)") == lock {
			_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended meanwhile, which is as well
			return
		}
	}
}
