package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// nsfsMagic is NSFS_MAGIC in include/uapi/linux/magic.h.
	nsfsMagic = 0x6e736673
	// netlinkTimeout bounds one answer of the kernel.
	netlinkTimeout = 10 * time.Second
)

// identity tells network namespaces apart.
type identity struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	// Cookie is never given to two namespaces of one boot, as an inode number
	// is; 0 where the kernel has none (SO_NETNS_COOKIE, Linux 5.14).
	Cookie uint64 `json:"cookie,omitempty"`
}

// startedIn is the namespace in which this process began: the host's, or the
// engine's.
var startedIn, _ = statIdentity("/proc/self/ns/net")

func statIdentity(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{Dev: st.Dev, Inode: st.Ino}, nil
}

// isHost tells whether the namespace is the host's own, or this process's.
func (id identity) isHost() bool {
	init, _ := statIdentity("/proc/1/ns/net") // another PID namespace's 1 is no harm
	for _, own := range []identity{startedIn, init} {
		if own.Inode == id.Inode && own.Dev == id.Dev {
			return true
		}
	}
	return false
}

// namespace is an open network namespace.
type namespace struct {
	*netlink.Handle
	file *os.File
	id   identity
}

// openNamespace opens the network namespace at path and a netlink socket in
// it.
func openNamespace(path string) (*namespace, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // a FIFO must not stop it
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open network namespace: %w: %w", err, errdefs.ErrNotFound)
		}
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	ns := &namespace{file: file}
	if err := ns.open(); err != nil {
		file.Close()
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return ns, nil
}

func (ns *namespace) open() error {
	fd := int(ns.file.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	ns.id = identity{Dev: st.Dev, Inode: st.Ino}
	var where unix.Statfs_t
	if err := unix.Fstatfs(fd, &where); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if where.Type != nsfsMagic {
		return fmt.Errorf("it is no namespace, or one that was unmounted: %w", errdefs.ErrInvalidArgument)
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return fmt.Errorf("it is a namespace of another kind than network: %w", errdefs.ErrInvalidArgument)
	}
	if ns.id.isHost() {
		return fmt.Errorf("host network requested, which is not supported: a VM has its own network: %w", errdefs.ErrInvalidArgument)
	}
	return ns.do(ns.connect)
}

// connect makes the netlink socket, by a thread that is in the namespace.
func (ns *namespace) connect() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	if err := h.SetSocketTimeout(netlinkTimeout); err != nil {
		h.Close()
		return fmt.Errorf("bound netlink's answers: %w", err)
	}
	ns.Handle = h
	ns.id.Cookie = cookie()
	return nil
}

// cookie is the namespace cookie of the calling thread, or 0.
func cookie() uint64 {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	c, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0
	}
	return c
}

// do runs f on a thread that is in the namespace. f must start no goroutine
// that relies on it, and no process.
func (ns *namespace) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- ns.enter(f)
			return
		}
		// The first thread's namespace is what /proc/self shows as the
		// process's: another thread does it while this one is held.
		done <- ns.do(f)
		runtime.UnlockOSThread()
	}()
	return <-done
}

// enter runs f in the namespace, on a locked thread. One that cannot be
// brought back stays locked, and ends with its goroutine.
func (ns *namespace) enter(f func() error) error {
	back, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer back.Close()
	if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = f()
	if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

func (ns *namespace) close() error {
	ns.Handle.Close()
	return ns.file.Close()
}
