package child

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// device is a device node to make.
type device struct {
	name   string
	number uint64
	mode   uint32
	owner  bool // the child's user owns it
}

// plain are harmless devices that most programs need.
var plain = []device{
	{name: "/dev/null", number: unix.Mkdev(1, 3), mode: 0o666},
	{name: "/dev/urandom", number: unix.Mkdev(1, 9), mode: 0o444},
}

// numbers looks up the device numbers of the host's names, before the root
// directory is changed.
func (j *Jail) numbers() error {
	for _, name := range j.Devices {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return &os.PathError{Op: "stat", Path: name, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR {
			return fmt.Errorf("%s is not a character device", name)
		}
		j.devices = append(j.devices, device{name: name, number: st.Rdev, mode: 0o600, owner: true})
	}
	return nil
}

// makeDevices makes /dev, a separate file system: all others are mounted nodev.
func (j *Jail) makeDevices() error {
	const flags = unix.MS_NOSUID | unix.MS_NOEXEC
	if err := os.MkdirAll("/dev", dirMode); err != nil {
		return err
	}
	if err := unix.Mount("katabox", "/dev", "tmpfs", flags, "mode=0755,size=64k"); err != nil {
		return os.NewSyscallError("mount", err)
	}
	for _, d := range append(plain[:len(plain):len(plain)], j.devices...) {
		if err := j.makeDevice(d); err != nil {
			return fmt.Errorf("make %s: %w", d.name, err)
		}
	}
	return os.NewSyscallError("remount", unix.Mount("", "/dev", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, ""))
}

func (j *Jail) makeDevice(d device) error {
	if err := unix.Mknod(d.name, unix.S_IFCHR|d.mode, int(d.number)); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	if err := unix.Chmod(d.name, d.mode); err != nil { // independent of the umask
		return os.NewSyscallError("chmod", err)
	}
	if !d.owner {
		return nil
	}
	return os.NewSyscallError("chown", unix.Chown(d.name, int(j.UID), int(j.GID)))
}
