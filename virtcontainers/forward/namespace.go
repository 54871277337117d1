package forward

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// shared are the namespaces that no pod may have: this process's own, and the
// host's, as far as they can be seen.
var shared = []string{"/proc/self/ns/net", "/proc/1/ns/net"}

// openNamespace opens a pod's network namespace.
func openNamespace(path string) (*os.File, error) {
	ns, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := ns.Stat()
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	for _, other := range shared {
		// A namespace is its file's device and inode (namespaces(7)).
		if theirs, err := os.Stat(other); err == nil && os.SameFile(info, theirs) {
			return nil, errors.Join(fmt.Errorf("it is that of %s, not a pod's own: %w", other, errdefs.ErrInvalidArgument), ns.Close())
		}
	}
	return ns, nil
}

// loopbacks are where our listeners are bound, on any free port. A client
// that connects to this very port means the guest's, as on any other.
var loopbacks = []unix.Sockaddr{
	&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}},
	&unix.SockaddrInet6{Addr: [16]byte{15: 1}},
}

// listenIn listens in the namespace: on 127.0.0.1, and on ::1 unless the
// kernel has no IPv6.
func listenIn(ns *os.File) ([]*net.TCPListener, error) {
	var made []*net.TCPListener
	err := inside(ns, func() error {
		for _, addr := range loopbacks {
			l, err := listen(addr)
			if errors.Is(err, unix.EAFNOSUPPORT) && len(made) > 0 {
				continue
			}
			if err != nil {
				return err
			}
			made = append(made, l)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, closeAll(made))
	}
	return made, nil
}

// inside calls do on a thread in the namespace, and waits for it. The thread
// serves nothing else afterwards: it ends with its goroutine.
func inside(ns *os.File, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and no unlock
		done <- visit(ns, do)
	}()
	return <-done
}

// visit calls do in the namespace and comes back. The process's first thread
// cannot end; it would stay in the namespace, and show it as the process's.
func visit(ns *os.File, do func() error) (err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		err = errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
	}
	return err
}

// listen makes a listening socket in the thread's namespace. Package net is
// not asked for it: it would listen by MPTCP, which a program may not pick
// for TCP, and it remembers for the process what the first namespace can do.
func listen(addr unix.Sockaddr) (*net.TCPListener, error) {
	family, level, freebind := unix.AF_INET, unix.SOL_IP, unix.IP_FREEBIND
	if _, six := addr.(*unix.SockaddrInet6); six {
		family, level, freebind = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "loopback")
	defer file.Close() // net.FileListener has its own
	// The engine may bring lo up later; until then it has no address.
	if err := unix.SetsockoptInt(fd, level, freebind, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, addr); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}
