package qemu

import (
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

const (
	// maxTaps is the most queues that a TAP device can have (Linux,
	// drivers/net/tun.c, MAX_TAP_QUEUES).
	maxTaps = 256
	// macLen is the length of an Ethernet address in bytes.
	macLen = 6
	// multicast is the bit of an address's first byte that marks group
	// addresses (IEEE 802, I/G).
	multicast = 1
)

// planNIC gives QEMU one descriptor for each queue pair. QEMU makes them
// non-blocking itself (net/tap.c, net_init_tap).
func planNIC(d hypervisor.NIC) (plan, error) {
	if err := checkNIC(d); err != nil {
		return plan{}, err
	}
	taps := named("fd-"+d.ID, d.Taps)
	vhosts := named("vhost-"+d.ID, d.Vhost)
	netdev := "net-" + d.ID
	props := map[string]any{
		"driver":         ModelNIC,
		"netdev":         netdev,
		"mac":            d.MAC.String(),
		"disable-legacy": "on",
		"romfile":        "", // no guest boots from it
	}
	if n := len(taps); n > 1 {
		// A vector for each queue, one for the control queue, one for
		// changes of the configuration.
		props["mq"], props["vectors"] = true, 2*n+2
	}
	return plan{
		files: append(taps, vhosts...),
		backend: &backend{
			add:    command{"netdev_add", tapNetdev(netdev, taps, vhosts)},
			remove: command{"netdev_del", map[string]any{"id": netdev}},
		},
		device: onPodBus(d.ID, props),
	}, nil
}

func checkNIC(d hypervisor.NIC) error {
	switch {
	case len(d.MAC) != macLen:
		return fmt.Errorf("MAC %q: not of %d bytes: %w", d.MAC, macLen, errdefs.ErrInvalidArgument)
	case d.MAC[0]&multicast != 0:
		return fmt.Errorf("MAC %s: a multicast address: %w", d.MAC, errdefs.ErrInvalidArgument)
	case [macLen]byte(d.MAC) == [macLen]byte{}: // QEMU would choose another
		return fmt.Errorf("MAC %s: an invalid address: %w", d.MAC, errdefs.ErrInvalidArgument)
	case len(d.Taps) == 0 || len(d.Taps) > maxTaps:
		return fmt.Errorf("%d TAP queues: not within 1 and %d: %w", len(d.Taps), maxTaps, errdefs.ErrInvalidArgument)
	case len(d.Vhost) != 0 && len(d.Vhost) != len(d.Taps):
		return fmt.Errorf("%d vhost-net files for %d TAP queues: %w", len(d.Vhost), len(d.Taps), errdefs.ErrInvalidArgument)
	}
	for _, f := range append(append([]*os.File(nil), d.Taps...), d.Vhost...) {
		if f == nil {
			return fmt.Errorf("a TAP or vhost-net file is missing: %w", errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

func named(prefix string, files []*os.File) []passed {
	var all []passed
	for i, f := range files {
		all = append(all, passed{name: fmt.Sprintf("%s-%d", prefix, i), file: f})
	}
	return all
}

// tapNetdev returns a TAP netdev, given the names of its descriptors
// (qapi/net.json, NetdevTapOptions; "fds" does not accept a single one).
func tapNetdev(id string, taps, vhosts []passed) map[string]any {
	args := map[string]any{"type": "tap", "id": id}
	plural := ""
	if len(taps) > 1 {
		plural = "s"
	}
	args["fd"+plural] = joined(taps)
	if len(vhosts) > 0 {
		args["vhost"], args["vhostfd"+plural] = true, joined(vhosts)
		// Without it an unusable vhost-net is only a warning, after which QEMU
		// 7.2 aborts: it looks for the network device that it has just freed
		// (net/tap.c, net_init_tap_one; net/net.c, net_client_init1).
		args["vhostforce"] = true
	}
	return args
}

func joined(files []passed) string {
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, f.name)
	}
	return strings.Join(names, ":")
}

// tapFlags are the flags that QEMU relies on: Ethernet frames, each behind a
// virtio-net header and nothing else (linux/if_tun.h). QEMU would accept a TAP
// device without the virtio-net header and disable every offload.
const tapFlags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

// prepareTaps refuses anything but queues of one suitable TAP device. It
// enables disabled queues, as an earlier card may have left them: QEMU 7.2
// assumes that each queue is enabled, and aborts when it cannot disable it
// (hw/net/virtio-net.c, virtio_net_set_queue_pairs).
func prepareTaps(taps []*os.File) error {
	var first string
	for i, f := range taps {
		ifr, err := tapIoctl(f, unix.TUNGETIFF, 0)
		if err != nil {
			return fmt.Errorf("ask %s for its TAP device: %w", f.Name(), err)
		}
		name, flags := ifr.Name(), ifr.Uint16()
		if flags&tapFlags != tapFlags {
			return fmt.Errorf("TAP device %s has flags %#x, without one of %#x (IFF_TAP, IFF_NO_PI, IFF_VNET_HDR): %w",
				name, flags, tapFlags, errdefs.ErrInvalidArgument)
		}
		if i == 0 {
			first = name
		}
		if name != first {
			return fmt.Errorf("queues of the TAP devices %s and %s in one card: %w", first, name, errdefs.ErrInvalidArgument)
		}
		if flags&unix.IFF_DETACH_QUEUE == 0 { // drivers/net/tun.c, TUNGETIFF
			continue
		}
		if _, err := tapIoctl(f, unix.TUNSETQUEUE, unix.IFF_ATTACH_QUEUE); err != nil {
			return fmt.Errorf("enable a queue of TAP device %s: %w", name, err)
		}
	}
	return nil
}

// tapIoctl makes an ioctl on an open queue, and returns its result.
func tapIoctl(f *os.File, request uint, flags uint16) (*unix.Ifreq, error) {
	ifr, err := unix.NewIfreq("")
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(flags)
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Not f.Fd(): that would make the open file blocking.
	ctlErr := raw.Control(func(fd uintptr) {
		err = unix.IoctlIfreq(int(fd), request, ifr)
	})
	if ctlErr != nil {
		return nil, ctlErr
	}
	return ifr, err
}
