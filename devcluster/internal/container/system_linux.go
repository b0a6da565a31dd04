package container

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var (
	devices  = []string{"null", "zero", "full", "random", "urandom", "tty"}
	devLinks = map[string]string{
		"/proc/self/fd": "/dev/fd", "/proc/self/fd/0": "/dev/stdin", "/proc/self/fd/1": "/dev/stdout",
		"/proc/self/fd/2": "/dev/stderr", "pts/ptmx": "/dev/ptmx",
	}
	// What a program could use to change the machine is read-only, what it could use to look into it is hidden.
	readOnlyProc = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	hiddenProc   = []string{"/proc/kcore", "/proc/keys", "/proc/timer_list"}
)

// mountSystem mounts /proc, /sys and /dev as container runtimes do.
func mountSystem(privileged bool) error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := bind(hostRoot+"/sys", "/sys", true); err != nil {
		return fmt.Errorf("show /sys: %w", err)
	}
	if err := mountDev(); err != nil {
		return err
	}
	if privileged {
		return nil
	}
	for _, path := range readOnlyProc {
		if err := ignoreMissing(unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
			return fmt.Errorf("bind %s: %w", path, err)
		}
		flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := ignoreMissing(unix.Mount("", path, "", flags, "")); err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	for _, path := range hiddenProc {
		if err := ignoreMissing(unix.Mount("/dev/null", path, "", unix.MS_BIND, "")); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	return nil
}

func mountDev() error {
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, name := range devices {
		if err := os.WriteFile("/dev/"+name, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount(hostRoot+"/dev/"+name, "/dev/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /dev/%s: %w", name, err)
		}
	}
	for target, link := range devLinks {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	if err := unix.Mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "mode=1777,size=64m"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
