// Package netns opens network namespaces of pods and runs code in them. A pod's
// namespace is never the host's, nor this process's: both are refused here, for
// all users of the package.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// nsfsMagic is NSFS_MAGIC in include/uapi/linux/magic.h.
const nsfsMagic = 0x6e736673

// ErrHost refuses the host's network.
var ErrHost = fmt.Errorf("host network requested, which is not supported: a VM has its own network: %w", errdefs.ErrInvalidArgument)

// startedIn is the namespace in which this process started: the host's, or the
// engine's.
var startedIn, _ = os.Stat("/proc/self/ns/net")

// Open opens the network namespace at path, which stays alive until the file
// is closed. It fails with ErrHost for the host's and for this process's own,
// with errdefs.ErrNotFound for a path that does not exist, and with
// errdefs.ErrInvalidArgument for anything but a network namespace.
func Open(path string) (*os.File, error) {
	ns, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // must not block on a FIFO
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open network namespace: %w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	if err := check(ns); err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace %s: %w", path, err), ns.Close())
	}
	return ns, nil
}

func check(ns *os.File) error {
	fd := int(ns.Fd())
	var where unix.Statfs_t
	if err := unix.Fstatfs(fd, &where); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if where.Type != nsfsMagic {
		return fmt.Errorf("it is not a namespace, or one that was unmounted: %w", errdefs.ErrInvalidArgument)
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return fmt.Errorf("it is a namespace of another kind than network: %w", errdefs.ErrInvalidArgument)
	}
	info, err := ns.Stat()
	if err != nil {
		return err
	}
	init, _ := os.Stat("/proc/1/ns/net") // pid 1 of another PID namespace does no harm
	// A namespace is identified by its file's device and inode (namespaces(7)).
	if os.SameFile(info, startedIn) || os.SameFile(info, init) {
		return ErrHost
	}
	return nil
}

// Do runs f on a thread that is in the namespace, and that ends with f. f must
// not start a process, nor a goroutine that relies on the namespace.
func Do(ns *os.File, f func() error) error {
	return ownthread.Run(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}
