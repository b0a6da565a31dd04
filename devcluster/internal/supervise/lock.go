package supervise

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errLocked says that a cluster, or a part of one, still lives in the state folder.
var errLocked = errors.New("the cluster is running")

// takeLock locks the state folder for this process and those it hands the file to, and writes the process's ID into it.
func takeLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock the state folder: %w", err)
	}
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("write the lock: %w", err)
	}
	return file, nil
}

// locked tells whether anything of a cluster lives, and the process ID of its supervisor.
func locked(path string) (supervisor int, alive bool) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer func() { _ = file.Close() }()
	if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0, false
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, true
	}
	supervisor, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
	return supervisor, true
}
