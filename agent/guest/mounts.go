package guest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CgroupRoot is where the unified cgroup hierarchy is mounted.
const CgroupRoot = "/sys/fs/cgroup"

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

const (
	noSuidExec    = unix.MS_NOSUID | unix.MS_NOEXEC
	noSuidExecDev = noSuidExec | unix.MS_NODEV
)

// kernelMounts are mounted in order; missing targets are made.
var kernelMounts = []mount{
	{"proc", "/proc", "proc", noSuidExecDev, ""},
	{"sysfs", "/sys", "sysfs", noSuidExecDev, ""},
	{"devtmpfs", "/dev", "devtmpfs", noSuidExec, "mode=0755"},
	{"devpts", "/dev/pts", "devpts", noSuidExec, "ptmxmode=0666,mode=0620,gid=5"},
	{"shm", "/dev/shm", "tmpfs", noSuidExecDev, "mode=1777"},
	{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
}

func mountAll() error {
	for _, m := range kernelMounts {
		if err := m.mount(); err != nil {
			return err
		}
	}
	return mountCgroups()
}

// mountCgroups mounts cgroup v2 with the options of systemd's hosts (src/shared/mount-setup.c).
// By memory_recursiveprot, memory.min and memory.low protect the cgroups that a container
// makes, too; Linux before 5.7 does not know it.
func mountCgroups() error {
	const older = "nsdelegate"
	m := mount{"cgroup2", CgroupRoot, "cgroup2", noSuidExecDev, older + ",memory_recursiveprot"}
	err := m.mount()
	if errors.Is(err, unix.EINVAL) {
		m.data = older
		err = m.mount()
	}
	return err
}

func (m mount) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
	// EBUSY: the same file system is already mounted there.
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

// writeFile writes to an existing file of a kernel file system.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
