package rootfs

import (
	"errors"
	"fmt"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// Mount makes the mounts and /dev. inner has for each mount of [Inner], in its
// order, the absolute path in the old root at which the process has made it. That
// mount stays there; the container gets a copy of it at the right place, which
// is thus in the order of config among the others (proc_pid_mountinfo(5)).
func (r *Root) Mount(inner []string) error {
	for _, m := range r.config.Mounts {
		var err error
		switch {
		case !isInner(m):
			err = r.mount(m)
		case len(inner) == 0:
			err = errors.New("no mount from the container's process")
		default:
			err = r.mountInner(m, inner[0])
			inner = inner[1:]
		}
		if err != nil {
			return fmt.Errorf("error mounting %q to rootfs at %q: %w", m.Source, m.Destination, err)
		}
	}
	if MakesDev(r.config) {
		if err := r.makeDev(); err != nil {
			return fmt.Errorf("configuring container /dev: %w", err)
		}
	}
	return nil
}

func (r *Root) mount(m *configs.Mount) error {
	if m.IsBind() {
		return r.bind(m)
	}
	at, err := r.mountpoint(m, noSource)
	if err != nil {
		return err
	}
	defer unix.Close(at.fd)
	flags, data := uintptr(m.Flags), m.Data
	if m.Device == "tmpfs" {
		if data, err = copyMode(at, data); err != nil {
			return err
		}
	}
	// Files will be made in such mounts; Finish makes them read-only.
	later := flags&unix.MS_RDONLY != 0 && (m.Device == "tmpfs" || r.inside(m.Destination) == "/dev")
	if later {
		flags &^= unix.MS_RDONLY
	}
	if err := mount(m.Source, at, m.Device, flags, data); err != nil {
		return err
	}
	if len(m.PropagationFlags) == 0 && !later {
		return nil
	}
	mounted, err := r.reopen(at)
	if err != nil {
		return err
	}
	if !later {
		defer unix.Close(mounted.fd)
	} else {
		r.writable = append(r.writable, mounted)
	}
	return propagate(mounted, m)
}

// reopen opens the mount that was placed at a mountpoint.
func (r *Root) reopen(at place) (place, error) {
	fd, err := r.open(r.inside(at.path), unix.O_PATH, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return place{}, fmt.Errorf("reopen mountpoint after mount: %w", err)
	}
	again, err := pathOf(fd)
	if err == nil && again != at.path {
		err = fmt.Errorf("mountpoint %q was moved while re-opening", at.name)
	}
	if err != nil {
		unix.Close(fd)
		return place{}, err
	}
	at.fd = fd
	return at, nil
}

// mountInner mounts a copy of the mount at from, which a process in the
// container's namespaces has made.
func (r *Root) mountInner(m *configs.Mount, from string) error {
	tree, err := cloneTree(unix.AT_FDCWD, from, false)
	if err != nil {
		return fmt.Errorf("copy mount %s: %w", from, err)
	}
	defer unix.Close(tree)
	at, err := r.mountpoint(m, noSource)
	if err != nil {
		return err
	}
	defer unix.Close(at.fd)
	if err := attach(tree, at.fd); err != nil {
		return mountError(m.Source, at.name, uintptr(m.Flags), m.Data, err)
	}
	if m.Device == "cgroup" {
		return nil // libcontainer does not set the propagation of this one.
	}
	return propagate(place{fd: tree, name: at.name}, m)
}

// propagate sets the propagation that the config has for a mount.
func propagate(mounted place, m *configs.Mount) error {
	for _, flags := range m.PropagationFlags {
		if err := mount("", mounted, "", uintptr(flags), ""); err != nil {
			return fmt.Errorf("change mount propagation: %w", err)
		}
	}
	return nil
}
