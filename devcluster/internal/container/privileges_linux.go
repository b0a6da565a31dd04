package container

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// capabilityNames lists the capabilities by number, without "CAP_".
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
	SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
	CHECKPOINT_RESTORE`)

// defaultCapabilities are those a container has when nothing is said. MKNOD is left out: without a device controller it
// would open the host's disks.
var defaultCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE
	NET_RAW SYS_CHROOT AUDIT_WRITE SETFCAP`)

// dropPrivileges turns the thread into the container's user with the container's capabilities.
func dropPrivileges(spec *Spec) error {
	if !spec.Privileged {
		if err := limitCapabilities(allowedCapabilities(spec)); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups(spec.Groups); err != nil {
		return fmt.Errorf("set the groups: %w", err)
	}
	if err := syscall.Setresgid(spec.GID, spec.GID, spec.GID); err != nil {
		return fmt.Errorf("become group %d: %w", spec.GID, err)
	}
	if err := syscall.Setresuid(spec.UID, spec.UID, spec.UID); err != nil {
		return fmt.Errorf("become user %d: %w", spec.UID, err)
	}
	if spec.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("forbid new privileges: %w", err)
		}
	}
	// Changing the user cleared this: nothing outlives the node.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("bind the container's life to the node's: %w", err)
	}
	return nil
}

func allowedCapabilities(spec *Spec) map[string]bool {
	allowed := map[string]bool{}
	set := func(names []string, value bool) {
		for _, name := range names {
			if name == "ALL" {
				for _, each := range capabilityNames {
					allowed[each] = value
				}
				continue
			}
			allowed[strings.TrimPrefix(name, "CAP_")] = value
		}
	}
	set(defaultCapabilities, true)
	// As in container runtimes, "ALL" is applied before names, so that dropping all and adding one leaves that one.
	set(spec.DropCapabilities, false)
	set(spec.AddCapabilities, true)
	return allowed
}

// limitCapabilities bounds what the program can ever have.
func limitCapabilities(allowed map[string]bool) error {
	for number, name := range capabilityNames {
		if allowed[name] {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0)
		if err != nil && err != unix.EINVAL { // EINVAL: the kernel does not know it
			return fmt.Errorf("drop capability %s: %w", name, err)
		}
	}
	return nil
}
