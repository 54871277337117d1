package network

import (
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/netns"
)

// netlinkTimeout bounds each wait for an answer of the kernel.
const netlinkTimeout = 10 * time.Second

// identity distinguishes network namespaces.
type identity struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	// Cookie is unique during a boot, unlike an inode number, which is reused;
	// 0 if the kernel has none (SO_NETNS_COOKIE, Linux 5.14).
	Cookie uint64 `json:"cookie,omitempty"`
}

// namespace is an open network namespace.
type namespace struct {
	*netlink.Handle
	file *os.File
	id   identity
	// packets has the memberships of receiveMulticast; nil before the first.
	packets *os.File
}

// openNamespace opens the network namespace at path and a netlink socket in
// it.
func openNamespace(path string) (*namespace, error) {
	file, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	ns := &namespace{file: file}
	if err := ns.open(); err != nil {
		file.Close()
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return ns, nil
}

func (ns *namespace) open() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.file.Fd()), &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	ns.id = identity{Dev: st.Dev, Inode: st.Ino}
	return ns.do(ns.connect)
}

// connect makes the netlink socket, on a thread that is in the namespace.
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

// cookie returns the namespace cookie of the calling thread, or 0.
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

// do runs f on a thread that is in the namespace (netns.Do).
func (ns *namespace) do(f func() error) error { return netns.Do(ns.file, f) }

func (ns *namespace) close() error {
	ns.Handle.Close()
	if ns.packets != nil {
		ns.packets.Close()
	}
	return ns.file.Close()
}
