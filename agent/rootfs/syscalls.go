package rootfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// modeBits are a mode's permission, sticky and set-id bits.
const modeBits = 0o7777

// place is an open mountpoint or mount.
type place struct {
	fd int
	// name is the path that errors show, path the one that the kernel shows.
	name, path string
	// existed says that the mountpoint was not made for its mount.
	existed bool
}

// fdPath returns a path that leads to a descriptor's file. It is valid before
// Enter.
func fdPath(fd int) string { return "/proc/thread-self/fd/" + strconv.Itoa(fd) }

// pathOf returns the path of a descriptor's file. It is valid before Enter.
func pathOf(fd int) (string, error) { return readLink(unix.AT_FDCWD, fdPath(fd)) }

// readLink reads the link at name in dir, or the one that dir is if name is "".
func readLink(dir int, name string) (string, error) {
	var buffer [unix.PathMax]byte
	n, err := unix.Readlinkat(dir, name, buffer[:])
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buffer[:n]), nil
}

func isLink(dir int, name string) bool {
	var buffer [1]byte
	_, err := unix.Readlinkat(dir, name, buffer[:])
	return err == nil
}

// mount calls mount(2) with a descriptor as its target. It is for use before Enter.
func mount(source string, at place, fstype string, flags uintptr, data string) error {
	return mountError(source, at.name, flags, data, unix.Mount(source, fdPath(at.fd), fstype, flags, data))
}

// mountAt calls mount(2) with a path that the container has no influence on.
func mountAt(source, target string, flags uintptr) error {
	return mountError(source, target, flags, "", unix.Mount(source, target, "", flags, ""))
}

// mountError says which mount err is about; nil if err is.
func mountError(source, target string, flags uintptr, data string, err error) error {
	if err == nil {
		return nil
	}
	words := "dst=" + target
	if source != "" {
		words = "src=" + source + ", " + words
	}
	if flags != 0 {
		words += ", flags=" + flagNames(flags)
	}
	if data != "" {
		words += ", data=" + data
	}
	return fmt.Errorf("mount %s: %w", words, err)
}

// cloneTree returns a copy of the mount at name, or at the descriptor dir if name
// is "", that is not mounted yet. The copy has the mounts below it if recursive.
func cloneTree(dir int, name string, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.OpenTree(dir, name, flags)
}

// attach mounts tree, which then is a descriptor of that mount.
func attach(tree int, at int) error {
	err := unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) && isDir(tree) != isDir(at) {
		return unix.ENOTDIR // What mount(2) returns.
	}
	return err
}

func setReadonly(mount int) error {
	return unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

func isDir(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
