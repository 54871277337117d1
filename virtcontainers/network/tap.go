package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	tunDevice   = "/dev/net/tun"
	vhostDevice = "/dev/vhost-net"
	// tunExcl is IFF_TUN_EXCL of include/uapi/linux/if_tun.h: the link must not
	// exist yet.
	tunExcl = 0x8000
)

// tapName returns the name of a link's tap. It is unique in the namespace,
// because the index is, and fits into IFNAMSIZ for any index.
func tapName(index int) string {
	name := fmt.Sprintf("tap%d_kata", index)
	if len(name) >= unix.IFNAMSIZ {
		name = fmt.Sprintf("tap%x_k", index)
	}
	return name
}

// newTap makes a tap with the given number of queues. It is gone when all of
// them, and their duplicates, are closed.
func (ns *namespace) newTap(name string, queues int) ([]*os.File, error) {
	files, err := ns.openQueues(name, queues, queueFlags(queues), tunExcl)
	if errors.Is(err, unix.EBUSY) {
		return nil, errTaken(name)
	}
	if err != nil {
		return nil, fmt.Errorf("make tap %s: %w", name, err)
	}
	return files, nil
}

// checkFree refuses names that links of the namespace already have: they belong
// to another VM and must not get into the record of what to undo. If a name is
// taken after this check, making the link fails.
func (ns *namespace) checkFree(names ...string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		switch _, err := ns.LinkByName(name); {
		case err == nil:
			return errTaken(name)
		case !isGone(err):
			return fmt.Errorf("find link %s: %w", name, err)
		}
	}
	return nil
}

func errTaken(name string) error {
	return fmt.Errorf("make link %s: the network namespace has it already, so another VM is in it (--network container:X is for containers of one pod): %w", name, errdefs.ErrAlreadyExists)
}

// openTap opens an existing tap. It returns a single queue if the tap was made
// for one.
func (ns *namespace) openTap(name string, queues int) ([]*os.File, error) {
	files, err := ns.openQueues(name, queues, severalQueues, 0)
	if errors.Is(err, unix.EINVAL) { // tun_set_iff: the tap has IFF_MULTI_QUEUE, or not
		files, err = ns.openQueues(name, 1, oneQueue, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open tap %s: %w", name, err)
	}
	return files, nil
}

// openQueues attaches queues to the tap of that name; first are flags for the
// first queue alone.
func (ns *namespace) openQueues(name string, queues int, flags, first uint16) (files []*os.File, err error) {
	err = ns.do(func() error {
		for range queues {
			f, err := openQueue(unix.AT_FDCWD, tunDevice, name, flags|first)
			if err != nil {
				return err
			}
			files, first = append(files, f), 0
		}
		return nil
	})
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// The flags of a queue whose tap has no other, and of one of several (TUNSETIFF).
const (
	oneQueue      = uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	severalQueues = oneQueue | unix.IFF_MULTI_QUEUE
)

func queueFlags(queues int) uint16 {
	if queues > 1 {
		return severalQueues
	}
	return oneQueue
}

// openQueue opens one queue of a tap in the thread's network namespace, or of a macvtap,
// by its device, which is at a path in dir.
func openQueue(dir int, device, name string, flags uint16) (*os.File, error) {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", name, err)
	}
	fd, err := unix.Openat(dir, device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: device, Err: err}
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("TUNSETIFF", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// raise gives a link that was made here the MTU of the link it serves and
// brings it up, with IPv6 disabled: what it would send (router solicitations,
// multicast reports) would reach the guest. It returns the index.
func (ns *namespace) raise(name string, mtu int) (index int, err error) {
	made, err := ns.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	err = ns.LinkSetIP6AddrGenMode(made, nl.IN6_ADDR_GEN_MODE_NONE)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6
		return 0, fmt.Errorf("keep IPv6 off link %s: %w", name, err)
	}
	if err := ns.LinkSetMTU(made, mtu); err != nil {
		return 0, fmt.Errorf("set the MTU of link %s to %d: %w", name, mtu, err)
	}
	if err := ns.LinkSetUp(made); err != nil {
		return 0, fmt.Errorf("bring up link %s: %w", name, err)
	}
	return made.Attrs().Index, nil
}

// removeLink removes a link that was made here, if it exists and is still of
// the kind that was made.
func (ns *namespace) removeLink(name, kind string) error {
	made, err := ns.LinkByName(name)
	if isGone(err) {
		return nil
	}
	if err == nil && made.Type() == kind {
		err = ns.LinkDel(made)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("remove link %s: %w", name, err)
	}
	return nil
}

// isGone reports whether err means that a link is not in the namespace, or no
// longer.
func isGone(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// vhost opens the host kernel's data path, or returns nil if there is none.
func (n *Network) vhost(ctx context.Context, queues int) []*os.File {
	if !n.opts.VhostNet {
		return nil
	}
	files, err := openVhost(queues)
	if err != nil && n.tellOnce("vhost-net") {
		log.G(ctx).WithError(err).Debug("QEMU carries the pod's packets itself")
	}
	return files
}

// openVhost opens one /dev/vhost-net for each queue.
func openVhost(queues int) ([]*os.File, error) {
	var files []*os.File
	for range queues {
		f, err := os.OpenFile(vhostDevice, os.O_RDWR, 0)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("open vhost-net: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
