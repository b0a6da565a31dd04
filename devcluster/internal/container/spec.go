// Package container starts one program as a container would: in mount, PID, IPC and UTS namespaces of its own, with a root
// file system made for it, volumes at their mount paths, and no more privileges than asked for.
//
// The node re-executes its own binary with InitArg; that process reads a Spec, builds the root, and becomes the program. The
// program is then PID 1 of its namespace, so its end is the end of everything it started.
package container

// InitArg is the first argument that makes the binary build a container and become its program.
const InitArg = "devcluster-container-init"

// File descriptors the init process inherits.
const (
	specFD  = 3 // a Spec as JSON
	errorFD = 4 // a Failure as JSON; closed without one when the program was started
)

// Spec says what to start and how.
type Spec struct {
	// Root is an empty folder of the host; the root file system is mounted there (in the container's namespace only).
	Root string
	// Source names the root's mount, so that whoever looks at a mount table sees whose it is.
	Source   string
	Hostname string
	// Program is the host's path of the image's program. It is also visible in the container, at the same path.
	Program string
	// Args[0] is looked up in PATH when it has no slash; the base name of Program stands for Program.
	Args       []string
	Env        []string
	WorkingDir string
	Mounts     []Mount
	// ReadOnlyRoot makes everything read-only but the mounts that are not.
	ReadOnlyRoot bool

	UID, GID        int
	Groups          []int
	Privileged      bool
	NoNewPrivileges bool
	// AddCapabilities and DropCapabilities hold names without "CAP_", or "ALL".
	AddCapabilities, DropCapabilities []string
}

// Mount binds Source, a path of the host, to Target in the container.
type Mount struct {
	Source, Target string
	// SubPath is resolved within Source and may not leave it.
	SubPath  string
	ReadOnly bool
	// Tmpfs mounts an empty file system in memory instead of Source.
	Tmpfs bool
}

// Failure is what went wrong before the program ran.
type Failure struct{ Message string }
