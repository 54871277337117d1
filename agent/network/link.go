package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// addrGenModeNone says that the kernel makes no link-local address
// (include/uapi/linux/if_link.h, IN6_ADDR_GEN_MODE_NONE).
const addrGenModeNone = 1

// links gives each NIC its hardware address, MTU, flags and state, where the host has
// changed them: what a container has set since then stays.
func (j *job) links(ctx context.Context) error {
	for _, nic := range j.want.nics {
		if err := ctx.Err(); err != nil {
			return err
		}
		j.own.nics[nic.index], j.own.given[nic.index] = nic.name, true
		if err := j.link(nic); err != nil {
			delete(j.own.links, nic.index) // a part may be done
			return fmt.Errorf("interface %s: %w", nic.name, err)
		}
		j.own.links[nic.index] = nic
	}
	return nil
}

func (j *job) link(nic nic) error {
	link, err := netlink.LinkByIndex(nic.index)
	if err != nil {
		return fmt.Errorf("read its state: %w", err)
	}
	last, known := j.own.links[nic.index]
	up, err := j.setAddressing(nic, last, known, link)
	if err != nil {
		return err
	}
	if nic.hasLinkLocal() {
		if err := netlink.LinkSetIP6AddrGenMode(link, addrGenModeNone); err != nil {
			return fmt.Errorf("keep the kernel from making a link-local address: %w", err)
		}
	}
	if known && last.down == nic.down && !j.own.lowered[nic.index] {
		j.keptDown[nic.index] = !up && !nic.down
		return nil
	}
	return j.setState(nic, link, up)
}

// setAddressing sets the MAC, the MTU and ARP where they are not those that the host gave
// last, if it gave any. It reports whether the link is up.
func (j *job) setAddressing(nic, last nic, known bool, link netlink.Link) (up bool, err error) {
	up = link.Attrs().Flags&net.FlagUp != 0
	if !known || last.mac != nic.mac {
		if up, err = j.setMAC(nic, link); err != nil {
			return up, err
		}
	}
	if !known || last.mtu != nic.mtu {
		if err := j.setMTU(nic, link); err != nil {
			return up, err
		}
	}
	if !known || last.noARP != nic.noARP {
		err = j.setARP(nic, link)
	}
	return up, err
}

func (j *job) setMTU(nic nic, link netlink.Link) error {
	have := link.Attrs().MTU
	if nic.mtu == 0 || have == nic.mtu {
		return nil
	}
	if err := netlink.LinkSetMTU(link, nic.mtu); err != nil {
		return mtuError(nic, have, err)
	}
	if min(have, nic.mtu) < minMTU6 { // without IPv6
		j.own.disturbed[nic.index] = true
	}
	j.changes.addf("interface %s: MTU set to %d", nic.name, nic.mtu)
	return nil
}

// setState brings a NIC up, or takes it down if it is down on the host.
func (j *job) setState(nic nic, link netlink.Link, up bool) error {
	if up != nic.down {
		delete(j.own.lowered, nic.index)
		return nil
	}
	set, state := netlink.LinkSetUp, "up"
	if nic.down {
		set, state = netlink.LinkSetDown, "down"
	}
	if err := set(link); err != nil {
		return fmt.Errorf("set %s: %w", state, err)
	}
	delete(j.own.lowered, nic.index)
	j.own.disturbed[nic.index] = true
	j.changes.addf("interface %s set %s", nic.name, state)
	return nil
}

// lower sets a NIC down for a change that it needs; links raises it again.
func (j *job) lower(index int) error {
	if err := netlink.LinkSetDown(linkOf(index)); err != nil {
		return err
	}
	j.own.lowered[index], j.own.disturbed[index] = true, true
	return nil
}

// setMAC gives a NIC its hardware address and reports whether it is up. It
// first tries without taking the link down, which would lose routes: virtio_net
// supports that, but not every driver does.
func (j *job) setMAC(nic nic, link netlink.Link) (up bool, err error) {
	have, mac := link.Attrs(), hardwareAddr(nic.mac)
	up = have.Flags&net.FlagUp != 0
	if bytes.Equal(have.HardwareAddr, mac) {
		return up, nil
	}
	err = netlink.LinkSetHardwareAddr(link, mac)
	if up && errors.Is(err, unix.EBUSY) {
		if err := j.lower(nic.index); err != nil {
			return up, fmt.Errorf("set down to change the MAC: %w", err)
		}
		up, err = false, netlink.LinkSetHardwareAddr(link, mac)
	}
	if err != nil {
		return up, fmt.Errorf("set MAC %s, it has %s: %w", mac, have.HardwareAddr, err)
	}
	j.changes.addf("interface %s: MAC set to %s", nic.name, mac)
	return up, nil
}

func (j *job) setARP(nic nic, link netlink.Link) error {
	if nic.noARP == (link.Attrs().RawFlags&unix.IFF_NOARP != 0) {
		return nil
	}
	set, state := netlink.LinkSetARPOn, "on"
	if nic.noARP {
		set, state = netlink.LinkSetARPOff, "off"
	}
	if err := set(link); err != nil {
		return fmt.Errorf("switch ARP %s: %w", state, err)
	}
	j.changes.addf("interface %s: ARP switched %s", nic.name, state)
	return nil
}

// mtuError adds the NIC's range of MTUs if that is why the MTU was refused.
func mtuError(nic nic, have int, err error) error {
	if errors.Is(err, unix.EINVAL) {
		if least, most, ok := mtuRange(nic.index); ok {
			return fmt.Errorf("set MTU %d, it has %d and takes %d to %d: %w", nic.mtu, have, least, most, err)
		}
	}
	return fmt.Errorf("set MTU %d, it has %d: %w", nic.mtu, have, err)
}

// mtuRange reads a link's IFLA_MIN_MTU and IFLA_MAX_MTU, which the netlink
// library ignores.
func mtuRange(index int) (least, most uint32, ok bool) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil || len(answers) != 1 || len(answers[0]) < unix.SizeofIfInfomsg {
		return 0, 0, false
	}
	attrs, err := nl.ParseRouteAttr(answers[0][unix.SizeofIfInfomsg:])
	if err != nil {
		return 0, 0, false
	}
	for _, attr := range attrs {
		if len(attr.Value) < 4 {
			continue
		}
		switch attr.Attr.Type {
		case unix.IFLA_MIN_MTU:
			least = nl.NativeEndian().Uint32(attr.Value)
		case unix.IFLA_MAX_MTU:
			most = nl.NativeEndian().Uint32(attr.Value)
		}
	}
	return least, most, most != 0
}
