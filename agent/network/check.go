package network

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/pci"
)

const (
	macLen = 6
	// maxMTU is the largest of an Ethernet device (include/uapi/linux/
	// if_ether.h, ETH_MAX_MTU); a NIC may allow less.
	maxMTU = 0xffff
	// minMTU6 is the smallest MTU for IPv6 (RFC 8200, section 5): below it the
	// kernel disables IPv6 on a link.
	minMTU6 = 1280
	// maxName is IFNAMSIZ without the NUL.
	maxName = unix.IFNAMSIZ - 1
	// maxHostname is __NEW_UTS_LEN (include/uapi/linux/utsname.h).
	maxHostname = 64
)

// check reads a request. Its error names the field that is wrong.
func check(req *api.SetNetworkRequest) (*state, error) {
	c := checker{state: &state{loWithoutIPv6: req.GetLoWithoutIpv6()}, names: map[string]int{}}
	for _, step := range []func(*api.SetNetworkRequest) error{
		checkHostname, c.interfaces, c.routes, c.rules, c.absentRules, c.neighbours, c.dns,
	} {
		if err := step(req); err != nil {
			return nil, fmt.Errorf("set network: %w", err)
		}
	}
	return c.state, nil
}

// checker collects what was read.
type checker struct {
	state *state
	// names has the index of each interface in the request.
	names map[string]int
}

// wrong returns the error for a field.
func wrong(field, value, want string) error {
	return fmt.Errorf("%s is %.100q, want %s: %w", field, value, want, errdefs.ErrInvalidArgument)
}

func tooMany(field string, n, most int) error {
	if n <= most {
		return nil
	}
	return fmt.Errorf("%d %s, at most %d allowed: %w", n, field, most, errdefs.ErrInvalidArgument)
}

func checkHostname(req *api.SetNetworkRequest) error {
	name := req.GetHostname()
	if len(name) > maxHostname || strings.ContainsFunc(name, isBlank) {
		return wrong("hostname", name, fmt.Sprintf("at most %d bytes without blanks", maxHostname))
	}
	return nil
}

// isBlank reports whether r is a blank or a control character, including DEL.
func isBlank(r rune) bool { return r <= ' ' || r == 0x7f }

func (c *checker) interfaces(req *api.SetNetworkRequest) error {
	if err := tooMany("interfaces", len(req.GetInterfaces()), api.MaxInterfaces); err != nil {
		return err
	}
	paths := map[string]int{}
	for i, in := range req.GetInterfaces() {
		field := fmt.Sprintf("interfaces[%d]", i)
		if first, ok := c.names[in.GetName()]; ok {
			return wrong(field+".name", in.GetName(), fmt.Sprintf("another name than interfaces[%d]", first))
		}
		if first, ok := paths[in.GetPciPath()]; ok {
			return wrong(field+".pci_path", in.GetPciPath(), fmt.Sprintf("another place than interfaces[%d]", first))
		}
		c.names[in.GetName()], paths[in.GetPciPath()] = i, i
		nic, err := checkInterface(field, in)
		if err != nil {
			return err
		}
		c.state.nics = append(c.state.nics, nic)
	}
	return nil
}

func checkInterface(field string, in *api.Interface) (nic, error) {
	n := nic{
		path: in.GetPciPath(), name: in.GetName(), mtu: int(in.GetMtu()), noARP: in.GetNoArp(), withoutIPv6: in.GetWithoutIpv6(),
		down: in.GetDown(),
	}
	if !pci.ValidPath(n.path) {
		return n, wrong(field+".pci_path", n.path, pci.PathForm)
	}
	if err := checkName(field, n.name); err != nil {
		return n, err
	}
	var err error
	if n.mac, err = checkMAC(field, in.GetMac()); err != nil {
		return n, err
	}
	if n.mtu > maxMTU {
		return n, fmt.Errorf("%s.mtu is %d, want at most %d: %w", field, n.mtu, maxMTU, errdefs.ErrInvalidArgument)
	}
	if n.settings, err = checkSettings(field, in); err != nil {
		return n, err
	}
	n.addresses, err = checkAddresses(field, in)
	return n, err
}

// checkName accepts what net/core/dev.c (dev_valid_name) does, except names
// with '%', which a rename takes for a pattern, and lo.
func checkName(field, name string) error {
	if name == "" || len(name) > maxName || name == "." || name == ".." ||
		strings.ContainsAny(name, "/:%") || strings.ContainsFunc(name, isBlank) {
		return wrong(field+".name", name, fmt.Sprintf("1 to %d bytes without blanks, '/', ':' and '%%'", maxName))
	}
	if name == "lo" {
		return wrong(field+".name", name, "another name than the loopback's")
	}
	return nil
}

// checkMAC accepts what is_valid_ether_addr (include/linux/etherdevice.h)
// does: neither a group address nor zero.
func checkMAC(field string, mac []byte) (valid [macLen]byte, err error) {
	if len(mac) != macLen || mac[0]&1 != 0 || [macLen]byte(mac) == valid {
		return valid, fmt.Errorf("%s.mac is %x, want the %d bytes of one station: %w", field, mac, macLen, errdefs.ErrInvalidArgument)
	}
	return [macLen]byte(mac), nil
}

func checkAddresses(field string, in *api.Interface) ([]address, error) {
	if err := tooMany(field+".addresses", len(in.GetAddresses()), api.MaxAddresses); err != nil {
		return nil, err
	}
	seen := map[address]bool{}
	var list []address
	for i, a := range in.GetAddresses() {
		field := fmt.Sprintf("%s.addresses[%d]", field, i)
		prefix, err := netip.ParsePrefix(a.GetPrefix())
		if err != nil || !isStation(prefix.Addr()) {
			return nil, wrong(field+".prefix", a.GetPrefix(), `an address with its prefix length, as "10.88.0.2/16"`)
		}
		if prefix.Addr().Is6() && in.GetWithoutIpv6() {
			return nil, wrong(field+".prefix", a.GetPrefix(), "none of IPv6, because without_ipv6 is set")
		}
		if prefix.Addr().Is6() && in.GetMtu() != 0 && in.GetMtu() < minMTU6 {
			return nil, fmt.Errorf("%s is %s and the interface's mtu %d, want at least %d for IPv6: %w",
				field, prefix, in.GetMtu(), minMTU6, errdefs.ErrInvalidArgument)
		}
		peer, err := checkAddr(field+".peer", a.GetPeer(), prefix.Addr())
		if err != nil {
			return nil, err
		}
		if peer == prefix.Addr() { // As if there were none.
			peer = netip.Addr{}
		}
		valid := address{prefix: prefix, peer: peer, unrouted: a.GetNoPrefixRoute()}
		if seen[valid.key()] {
			return nil, wrong(field+".prefix", a.GetPrefix(), "an address that the interface has only once")
		}
		seen[valid.key()] = true
		list = append(list, valid)
	}
	return list, nil
}

// checkAddr reads an address of the same family as like, or none.
func checkAddr(field, text string, like netip.Addr) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !isStation(addr) {
		return addr, wrong(field, text, "the address of one station without a zone")
	}
	if addr.Is4() != like.Is4() {
		return addr, wrong(field, text, "an address of the same family as "+like.String())
	}
	return addr, nil
}

// isStation reports whether a is a unicast address. IPv4-mapped IPv6 addresses
// are refused: it is not clear which family is meant.
func isStation(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && !a.Is4In6()
}
