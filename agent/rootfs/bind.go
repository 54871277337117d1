package rootfs

import (
	"fmt"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// bind makes a bind mount.
func (r *Root) bind(m *configs.Mount) error {
	tree, err := cloneTree(unix.AT_FDCWD, m.Source, m.Flags&unix.MS_REC != 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", m.Source, err)
	}
	defer unix.Close(tree)
	at, err := r.mountpoint(m, tree)
	if err != nil {
		return err
	}
	defer unix.Close(at.fd)
	bound := place{fd: tree, name: at.name}
	if m.Flags&unix.MS_REMOUNT != 0 {
		// mount(2) then changes what is mounted there already.
		bound = at
		err = mount(m.Source, at, m.Device, uintptr(m.Flags), m.Data)
	} else if err = attach(tree, at.fd); err != nil {
		err = mountError(m.Source, at.name, uintptr(m.Flags), "", err)
	}
	if err != nil {
		return err
	}
	if err := propagate(bound, m); err != nil {
		return err
	}
	return setFlags(bound, m)
}

// setFlags sets the flags of a bind mount. A bind mount has its source's until it
// is remounted (mount(2)); they are kept if the config neither sets nor clears
// one.
func setFlags(bound place, m *configs.Mount) error {
	const notFlags = unix.MS_BIND | unix.MS_REC | unix.MS_REMOUNT
	if m.Flags&^notFlags != 0 || m.ClearedFlags != 0 {
		if err := mount("", bound, "", uintptr(m.Flags|unix.MS_BIND|unix.MS_REMOUNT), ""); err != nil {
			return fmt.Errorf("failed to set user-requested vfs flags on bind-mount: %w", err)
		}
	}
	if m.RecAttr == nil {
		return nil
	}
	if err := unix.MountSetattr(bound.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, m.RecAttr); err != nil {
		return fmt.Errorf("set recursive attributes: %w", err)
	}
	return nil
}
