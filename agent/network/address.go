package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addAddresses adds the addresses that are missing.
func (j *job) addAddresses(ctx context.Context) error {
	for _, nic := range j.want.nics {
		have, err := addressesOf(nic.index)
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", nic.name, err)
		}
		for _, a := range nic.addresses {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := j.addAddress(nic, a, have); err != nil {
				return fmt.Errorf("address %s dev %s: %w", a, nic.name, err)
			}
		}
	}
	return nil
}

func (j *job) addAddress(nic nic, a address, have []address) error {
	for _, other := range have {
		if other == a {
			return nil
		}
		if other.key() != a.key() {
			continue
		}
		if err := j.removeAddress(nic.index, other); err != nil && !isGone(err) {
			return fmt.Errorf("replace %s: %w", other, err)
		}
		j.changes.addf("address %s removed from %s", other, nic.name)
	}
	if err := addNow(nic.index, a); err != nil {
		return explainAddress(a, err)
	}
	if _, lost := j.own.addresses[ownAddress{nic.index, a}]; lost {
		j.disturb(nic.index, a)
	}
	j.own.addresses[ownAddress{nic.index, a}] = struct{}{}
	j.changes.addf("address %s added to %s", a, nic.name)
	return nil
}

func (j *job) removeAddress(index int, a address) error {
	j.disturb(index, a)
	return netlink.AddrDel(linkOf(index), a.netlink())
}

// disturb notes which NICs lose routes with an address: its own, and those of which a route
// has it as its source (the kernel's net/ipv4/fib_semantics.c, fib_sync_down_addr).
func (j *job) disturb(index int, a address) {
	j.own.disturbed[index] = true
	for r := range j.own.routes {
		if r.source == a.prefix.Addr() {
			j.own.disturbed[r.index] = true
		}
	}
}

// addNow adds an address that is usable at once. A link-local one then looks like
// those that kernels make, which have no flag (net/ipv6/addrconf.c,
// inet6_addr_modify, starts no duplicate address detection).
func addNow(index int, a address) error {
	addr := a.netlink()
	if err := netlink.AddrAdd(linkOf(index), addr); err != nil || !a.linkLocal() {
		return err
	}
	addr.Flags &^= unix.IFA_F_NODAD
	return netlink.AddrReplace(linkOf(index), addr)
}

// explainAddress adds to an error what to check.
func explainAddress(a address, err error) error {
	if a.prefix.Addr().Is6() {
		switch {
		case errors.Is(err, unix.EACCES): // net/ipv6/addrconf.c, addrconf_add_dev
			return fmt.Errorf("IPv6 is disabled in the guest, check the sysctls net.ipv6.conf.*.disable_ipv6: %w", err)
		case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("the guest's kernel has no IPv6, check its parameter ipv6.disable: %w", err)
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EINVAL):
			return fmt.Errorf("check that the interface has IPv6, which takes an MTU of at least %d: %w", minMTU6, err)
		}
	}
	return err
}

// netlink converts the address for the library. An IPv6 address is usable
// immediately: the host guarantees that it is unique, and a container that
// binds to it must not wait for duplicate address detection.
func (a address) netlink() *netlink.Addr {
	own := &net.IPNet{IP: a.prefix.Addr().AsSlice(), Mask: net.CIDRMask(a.prefix.Bits(), a.prefix.Addr().BitLen())}
	addr := &netlink.Addr{IPNet: own}
	if a.peer.IsValid() {
		addr.Peer = &net.IPNet{IP: a.peer.AsSlice(), Mask: own.Mask}
	}
	if a.prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if a.unrouted {
		addr.Flags |= unix.IFA_F_NOPREFIXROUTE
	}
	return addr
}

// addressesOf lists a link's addresses.
func addressesOf(index int) ([]address, error) {
	found, err := consistent(func() ([]netlink.Addr, error) {
		return netlink.AddrList(linkOf(index), netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	var list []address
	for _, addr := range found {
		if a, ok := addressFrom(addr); ok {
			list = append(list, a)
		}
	}
	return list, nil
}

// addressFrom reads an address. With a peer, the prefix is the peer's.
func addressFrom(addr netlink.Addr) (address, bool) {
	if addr.IPNet == nil {
		return address{}, false
	}
	own, ok := netip.AddrFromSlice(addr.IP)
	if !ok {
		return address{}, false
	}
	bits, _ := addr.Mask.Size()
	a := address{prefix: netip.PrefixFrom(own, bits), unrouted: addr.Flags&unix.IFA_F_NOPREFIXROUTE != 0}
	if addr.Peer == nil {
		return a, true
	}
	peer, ok := netip.AddrFromSlice(addr.Peer.IP)
	bits, _ = addr.Peer.Mask.Size()
	a.prefix = netip.PrefixFrom(own, bits)
	if peer != own {
		a.peer = peer
	}
	return a, ok
}

// isGone reports whether err means that what was to be removed, or its link,
// does not exist.
func isGone(err error) bool {
	for _, errno := range []error{unix.ESRCH, unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.EADDRNOTAVAIL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errors.As(err, new(netlink.LinkNotFoundError))
}
