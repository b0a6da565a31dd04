package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// hostRoot is where the host's root is while the container's is being built. It is unmounted before the program starts.
const hostRoot = "/.host"

// hostDirs are the host's folders a container sees, read-only: what programs and shared libraries need, and nothing else.
var hostDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt", "nix"}

// ownDirs are folders every container has for itself.
var ownDirs = map[string]os.FileMode{
	"dev": 0o755, "proc": 0o555, "sys": 0o555, "home": 0o755, "root": 0o700, "run": 0o755, "var": 0o755,
	"var/lib": 0o755, "var/log": 0o755, "var/cache": 0o755, "tmp": 0o777 | os.ModeSticky, "var/tmp": 0o777 | os.ModeSticky,
}

func buildRoot(spec *Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount(spec.Source, spec.Root, "tmpfs", unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	if err := os.Mkdir(filepath.Join(spec.Root, hostRoot), 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(spec.Root, filepath.Join(spec.Root, hostRoot)); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := layOut(); err != nil {
		return err
	}
	if err := mountSystem(spec.Privileged); err != nil {
		return err
	}
	if err := bindProgram(spec.Program); err != nil {
		return fmt.Errorf("bind the program %q: %w", spec.Program, err)
	}
	// A mount inside another one has the longer path: outer ones come first.
	sort.SliceStable(spec.Mounts, func(i, j int) bool {
		return strings.Count(filepath.Clean(spec.Mounts[i].Target), "/") < strings.Count(filepath.Clean(spec.Mounts[j].Target), "/")
	})
	for _, m := range spec.Mounts {
		if err := mountVolume(m); err != nil {
			return fmt.Errorf("mount %q: %w", m.Target, err)
		}
	}
	if err := unix.Unmount(hostRoot, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	return os.Remove(hostRoot)
}

func layOut() error {
	for name, mode := range ownDirs {
		if err := os.MkdirAll("/"+name, 0o755); err != nil {
			return err
		}
		if err := os.Chmod("/"+name, mode); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", "/var/run"); err != nil {
		return err
	}
	for _, name := range hostDirs {
		info, err := os.Lstat(hostRoot + "/" + name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		if err := mirrorEntry(hostRoot+"/"+name, "/"+name, info.Mode()); err != nil {
			return fmt.Errorf("show the host's /%s: %w", name, err)
		}
	}
	return nil
}

// mirrorEntry makes target show source: a symbolic link is copied, all else is bound read-only.
func mirrorEntry(source, target string, mode os.FileMode) error {
	switch {
	case mode&os.ModeSymlink != 0:
		link, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(link, target)
	case mode.IsDir():
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
	}
	return bind(source, target, true)
}

func bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return restrict(target, readOnly)
}

// restrict makes a mount and those below it harmless: no devices, no set-user-ID programs, and read-only if asked.
func restrict(target string, readOnly bool) error {
	attributes := uint64(unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID)
	if readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes}); err != nil {
		return fmt.Errorf("restrict (needs Linux 5.12): %w", err)
	}
	return nil
}

// bindProgram shows the image's program at the path it has on the host.
func bindProgram(program string) error {
	if _, err := os.Stat(program); err == nil {
		return nil // in one of the host's folders that are visible anyway
	}
	resolved, err := filepath.EvalSymlinks(hostRoot + program)
	if err != nil {
		// An absolute link points out of hostRoot; follow it by hand, once.
		link, linkErr := os.Readlink(hostRoot + program)
		if linkErr != nil {
			return err
		}
		resolved = hostRoot + link
	}
	if err := makeMountPoint(program, false); err != nil {
		return err
	}
	return bind(resolved, program, true)
}

func mountVolume(m Mount) error {
	if m.Tmpfs {
		if err := makeMountPoint(m.Target, true); err != nil {
			return err
		}
		return unix.Mount("tmpfs", m.Target, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=1777")
	}
	tree, isDir, err := openTree(hostRoot+m.Source, m.SubPath)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	if err := makeMountPoint(m.Target, isDir); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return restrict(m.Target, m.ReadOnly)
}

// openTree returns a detached copy of the mount at source, or of subPath in it. What a container put into a volume can
// make no subPath lead out of it.
func openTree(source, subPath string) (tree int, isDir bool, err error) {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false, fmt.Errorf("open the volume: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if subPath != "" {
		how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
		sub, err := unix.Openat2(fd, subPath, how)
		if errors.Is(err, unix.ENOENT) {
			if err := makeSubPath(source, subPath); err != nil {
				return 0, false, fmt.Errorf("make sub-path %q: %w", subPath, err)
			}
			sub, err = unix.Openat2(fd, subPath, how)
		}
		if err != nil {
			return 0, false, fmt.Errorf("open sub-path %q: %w", subPath, err)
		}
		_ = unix.Close(fd)
		fd = sub
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return 0, false, err
	}
	tree, err = unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return 0, false, fmt.Errorf("copy the mount: %w", err)
	}
	return tree, stat.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// makeSubPath makes a folder in a volume, with the volume's permissions, and follows no link out of it.
func makeSubPath(volume, subPath string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	return root.MkdirAll(filepath.Clean(subPath), info.Mode().Perm())
}

// makeMountPoint makes sure that path exists. Where it would have to be made in a folder that shows the host's, that folder
// is replaced by one of the container's own with the same entries.
func makeMountPoint(path string, isDir bool) error {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the path %q is not absolute", path)
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if err := makeMountPoint(parent, true); err != nil {
		return err
	}
	create := func() error {
		if isDir {
			return os.Mkdir(path, 0o755)
		}
		return os.WriteFile(path, nil, 0o644)
	}
	err := create()
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	if err := replaceByCopy(parent); err != nil {
		return fmt.Errorf("make room in %q: %w", parent, err)
	}
	return create()
}

func replaceByCopy(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(hostRoot + dir)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for _, entry := range entries {
		if err := mirrorEntry(filepath.Join(hostRoot+dir, entry.Name()), filepath.Join(dir, entry.Name()), entry.Type()); err != nil {
			return err
		}
	}
	return nil
}
