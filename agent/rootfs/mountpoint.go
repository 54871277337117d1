package rootfs

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

const (
	// noSource is the source of a mount that is not a bind mount.
	noSource = -1
	// fileMode is the mode of a file that is made as a mountpoint.
	fileMode = 0o644
)

// mountpoint opens the place for a mount and makes it if it is missing: a file
// for a bind mount of something other than a directory, else a directory. source
// is a bind mount's source.
func (r *Root) mountpoint(m *configs.Mount, source int) (place, error) {
	if m.Device == "proc" || m.Device == "sysfs" {
		return r.ordinaryDir(m)
	}
	at, err := r.openOrMake(m, source)
	if err == nil {
		err = r.locate(&at, m, source)
	}
	if err != nil {
		return place{}, fmt.Errorf("create mountpoint for %s mount: %w", m.Destination, err)
	}
	return at, nil
}

func (r *Root) openOrMake(m *configs.Mount, source int) (place, error) {
	name := r.inside(m.Destination)
	fd, err := r.open(name, unix.O_PATH, 0)
	existed := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return place{}, fmt.Errorf("lookup mountpoint target: %w", err)
	}
	if !existed {
		if source != noSource && !isDir(source) {
			fd, err = r.makeFile(name)
		} else {
			fd, err = r.makeMissing(name)
		}
		if err != nil {
			return place{}, fmt.Errorf("make mountpoint %q: %w", m.Destination, err)
		}
	}
	return place{fd: fd, name: m.Destination, existed: existed}, nil
}

// ordinaryDir opens the place for a proc or sysfs. It must not be a link, through
// which the root would choose where the container has them.
func (r *Root) ordinaryDir(m *configs.Mount) (place, error) {
	name := r.inside(m.Destination)
	if err := r.checkProc(r.path+name, m, noSource); err != nil {
		return place{}, err
	}
	fd, err := r.open(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		fd, err = r.makeMissing(name)
	}
	if err != nil {
		return place{}, err
	}
	if !isDir(fd) {
		unix.Close(fd)
		return place{}, fmt.Errorf("filesystem %q must be mounted on ordinary directory", m.Device)
	}
	at := place{fd: fd, name: m.Destination}
	err = r.locate(&at, m, noSource)
	return at, err
}

// makeFile makes an empty file and opens it.
func (r *Root) makeFile(name string) (int, error) {
	dir, base, err := r.parent(name)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, base, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
}

// locate finds out where an open mountpoint really is, and checks that a mount may
// go there. It closes the mountpoint if not.
func (r *Root) locate(at *place, m *configs.Mount, source int) (err error) {
	if at.path, err = pathOf(at.fd); err == nil {
		err = r.check(at.path, m, source)
	}
	if err != nil {
		unix.Close(at.fd)
	}
	return err
}

// check refuses a mountpoint, given as the kernel shows it, that is not in the
// root, is the root itself, or hides a part of /proc.
func (r *Root) check(at string, m *configs.Mount, source int) error {
	rest, ok := cutDir(at, r.path)
	switch {
	case !ok:
		return fmt.Errorf("mountpoint %q is outside of rootfs %q", at, r.path)
	case rest == "":
		return fmt.Errorf("mountpoint %q is on the top of rootfs %q", at, r.path)
	}
	if err := r.checkProc(at, m, source); err != nil {
		return fmt.Errorf("check proc-safety of %s mount: %w", m.Destination, err)
	}
	return nil
}

// copyMode adds the mode of a tmpfs's mountpoint to its options, before those
// that the config has.
func copyMode(at place, data string) (string, error) {
	if !at.existed {
		return data, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(at.fd, &st); err != nil {
		return "", fmt.Errorf("check tmpfs source mode: %w", err)
	}
	mode := "mode=" + strconv.FormatUint(uint64(st.Mode&modeBits), 8)
	if data == "" {
		return mode, nil
	}
	return mode + "," + data, nil
}
