package network

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// macvtapKind is the kind of a macvtap among links.
const macvtapKind = "macvtap"

// checkMacvtap refuses a macvlan link: a macvtap on it becomes its sibling on
// the same lower device, and each would receive the other's packets
// (macvlan_common_newlink in the kernel's drivers/net/macvlan.c). The kernel itself
// refuses one on an ipvlan.
func checkMacvtap(l link) error {
	if l.kind == "macvlan" || l.kind == macvtapKind || l.kind == "ipvlan" {
		return fmt.Errorf("model %s is not for links of this kind: use %s: %w", Macvtap, TCFilter, errdefs.ErrInvalidArgument)
	}
	return nil
}

// buildMacvtap makes a macvtap over a link. What the guest sends leaves over
// the link. What comes in over the link is redirected to the macvtap before any
// other consumer sees it. So the macvtap does not need the guest's MAC: the
// link keeps MAC, addresses and routes, but its own stack receives only what
// connectIn lets pass, and answers for nothing of the guest's.
func (n *Network) buildMacvtap(ctx context.Context, p *plan) ([]*os.File, error) {
	err := n.ns.LinkAdd(&netlink.Macvtap{Macvlan: netlink.Macvlan{
		LinkAttrs: netlink.LinkAttrs{Name: p.want.Made, ParentIndex: p.link.index, TxQLen: -1},
		Mode:      netlink.MACVLAN_MODE_BRIDGE,
	}})
	if err != nil {
		return nil, fmt.Errorf("make macvtap %s: %w", p.want.Made, err)
	}
	p.made.Made, p.made.Kind = p.want.Made, p.want.Kind
	index, err := n.ns.raise(p.made.Made, p.link.mtu)
	if err != nil {
		return nil, err
	}
	if err := n.shapeMacvtap(p, index); err != nil {
		return nil, fmt.Errorf("%s: %w", p.made.Made, err)
	}
	taps, err := n.ns.openMacvtap(p.made.Made, index, n.opts.Queues)
	if err != nil {
		return taps, fmt.Errorf("open macvtap %s: %w", p.made.Made, err)
	}
	return taps, n.connectIn(ctx, p, index, received)
}

// shaperKind is the kind of an ifb among links.
const shaperKind = "ifb"

func shaperName(index int) string { return "ifb" + tapName(index)[len("tap"):] }

// shapeMacvtap limits what is sent and received over a macvtap: an ifb takes
// the packets from the macvtap's ingress, queues them, and returns them there
// (the kernel's drivers/net/ifb.c).
func (n *Network) shapeMacvtap(p *plan, index int) error {
	if n.opts.TxRate != 0 {
		if err := n.ns.limitRate(index, n.opts.TxRate); err != nil {
			return err
		}
	}
	if p.want.Shaper == "" {
		return nil
	}
	err := n.ns.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: p.want.Shaper, TxQLen: -1}})
	if err != nil {
		return fmt.Errorf("make ifb %s: %w", p.want.Shaper, err)
	}
	p.made.Shaper = p.want.Shaper
	shaper, err := n.ns.raise(p.made.Shaper, p.link.mtu)
	if err != nil {
		return err
	}
	if err := n.ns.limitRate(shaper, n.opts.RxRate); err != nil {
		return err
	}
	return n.ns.connectOut(index, shaper, topPriority)
}

// openMacvtap opens queues of a macvtap. The number of its character device is
// only in sysfs, as seen from the namespace, and it has a node only if
// something like udev makes one. So both file systems are mounted temporarily
// and detached (fsmount(2), Linux 5.2), and vanish when closed.
func (ns *namespace) openMacvtap(name string, index, queues int) (files []*os.File, err error) {
	err = ns.do(func() error {
		dev, err := macvtapNumber(name, index)
		if err != nil {
			return err
		}
		nodes, err := detachedMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(nodes)
		if err := unix.Mknodat(nodes, name, unix.S_IFCHR|0o600, int(dev)); err != nil {
			return fmt.Errorf("make a device node: %w", err)
		}
		for range queues { // each open of the device is one (tap_open in the kernel's drivers/net/tap.c)
			f, err := openQueue(nodes, name, name, queueFlags(queues))
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		return nil
	})
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// macvtapNumber returns the device number of a macvtap in the thread's
// namespace.
func macvtapNumber(name string, index int) (uint64, error) {
	sys, err := detachedMount("sysfs", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(sys)
	path := fmt.Sprintf("class/net/%s/macvtap/tap%d/dev", name, index)
	fd, err := unix.Openat(sys, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open sysfs %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	var major, minor uint32
	if _, err := fmt.Fscanf(file, "%d:%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("read sysfs %s: %w", path, err)
	}
	return unix.Mkdev(major, minor), nil
}

// detachedMount makes a detached mount of a file system; it vanishes when the
// descriptor is closed.
func detachedMount(kind string, attrs int) (fd int, err error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open file system %s: %w", kind, err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make file system %s: %w", kind, err)
	}
	fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("mount file system %s: %w", kind, err)
	}
	return fd, nil
}
