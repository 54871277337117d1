package network

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// receiveMulticast makes a link receive all multicast: the groups that the guest
// joins are unknown to it. It does so by a membership of a packet socket (packet(7)),
// not by the link's flag IFF_ALLMULTI. A link that leaves the namespace keeps the
// flag, and so may the device below it; a membership ends with the link's stay and with
// this process, however they end. The socket has no protocol and receives nothing.
func (ns *namespace) receiveMulticast(index int) error {
	if ns.packets == nil {
		if err := ns.do(ns.openPackets); err != nil {
			return err
		}
	}
	// The kernel counts: a second membership would outlive one dropMulticast.
	if err := ns.dropMulticast(index); err != nil {
		return err
	}
	if err := ns.membership(unix.PACKET_ADD_MEMBERSHIP, index); err != nil {
		return fmt.Errorf("receive all multicast: %w", err)
	}
	return nil
}

// dropMulticast undoes receiveMulticast. It is no error if there is nothing to undo.
func (ns *namespace) dropMulticast(index int) error {
	if ns.packets == nil {
		return nil
	}
	err := ns.membership(unix.PACKET_DROP_MEMBERSHIP, index)
	if err != nil && !isGone(err) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("no longer receive all multicast: %w", err)
	}
	return nil
}

func (ns *namespace) membership(option, index int) error {
	mreq := &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI}
	return os.NewSyscallError("setsockopt", unix.SetsockoptPacketMreq(int(ns.packets.Fd()), unix.SOL_PACKET, option, mreq))
}

// openPackets opens the socket, on a thread that is in the namespace.
func (ns *namespace) openPackets() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket (CONFIG_PACKET, CAP_NET_RAW): %w", os.NewSyscallError("socket", err))
	}
	ns.packets = os.NewFile(uintptr(fd), "packet socket")
	return nil
}

// clearMulticast clears a link's flag IFF_ALLMULTI, which joint.Multicast asks for.
func (ns *namespace) clearMulticast(index int) error {
	if err := ns.LinkSetAllmulticastOff(linkAt(index)); err != nil && !isGone(err) {
		return fmt.Errorf("disable reception of all multicast: %w", err)
	}
	return nil
}
