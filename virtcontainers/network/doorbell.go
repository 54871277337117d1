package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// Doorbell tells that a packet for one of a pod's cards, or a question for the
// card of one of its addresses, is on one of its links. The packet itself goes
// where it would go anyway: to the tap's queue, which drops what does not fit (1000 frames,
// 500 with model macvtap, broadcasts among them).
type Doorbell struct {
	files []*os.File // packet sockets
}

// Doorbell listens on the links that have a NIC now; the caller closes it.
func (n *Network) Doorbell(ctx context.Context) (*Doorbell, error) {
	if err := n.take(ctx); err != nil {
		return nil, err
	}
	defer n.give()
	bell := new(Doorbell)
	byPath := make(map[string]*api.Interface)
	for _, i := range n.State().GetInterfaces() {
		byPath[i.GetPciPath()] = i
	}
	err := n.ns.do(func() error {
		for index, path := range n.paths() {
			if i := byPath[path]; i != nil {
				if err := bell.listen(index, i); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for packets in network namespace %s: %w", n.opts.Namespace, err), bell.Close())
	}
	return bell, nil
}

// listen adds a socket that receives what is meant for the interface. Without a
// protocol a packet socket receives nothing until it is bound (packet(7)): so it
// has its filter before its first packet.
func (b *Doorbell) listen(index int, i *api.Interface) error {
	program, err := bpf.Assemble(filterFor(i))
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	b.files = append(b.files, os.NewFile(uintptr(fd), "packets"))
	filter := make([]unix.SockFilter, len(program))
	for n, op := range program {
		filter[n] = unix.SockFilter{Code: op.Op, Jt: op.Jt, Jf: op.Jf, K: op.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
}

// Offsets in an Ethernet frame (RFC 826, RFC 8200, RFC 4861).
const (
	etherType    = 12
	arpTarget    = 14 + 24
	ip6Next      = 14 + 6
	icmp6Type    = 14 + 40
	nsTarget     = icmp6Type + 8
	icmp6        = 58
	solicitation = 135
)

// filterFor returns the filter for frames that are meant for an interface: to its
// address, ARP requests for its IPv4 addresses, and neighbour solicitations for
// its IPv6 addresses.
func filterFor(i *api.Interface) []bpf.Instruction {
	var f []bpf.Instruction
	if mac := i.GetMac(); len(mac) == 6 {
		f = append(f,
			bpf.LoadAbsolute{Off: 0, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(mac), SkipTrue: 3},
			bpf.LoadAbsolute{Off: 4, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(binary.BigEndian.Uint16(mac[4:])), SkipTrue: 1},
			bpf.RetConstant{Val: 1},
		)
	}
	var asked []bpf.Instruction
	for _, a := range i.GetAddresses() {
		if p, err := netip.ParsePrefix(a.GetPrefix()); err == nil {
			asked = append(asked, asksFor(p.Addr().Unmap())...)
		}
	}
	if len(asked) > maxAsked {
		asked = append(matching(arpFrame), matching(solicitationFrame)...)
	}
	return append(append(f, asked...), bpf.RetConstant{Val: 0})
}

// maxAsked is how many instructions a filter may have for questions: the kernel takes
// 4096 (BPF_MAXINSNS), and fewer where net.core.optmem_max is small (20480 bytes by
// default on older kernels), since it translates each to several of 8 bytes. An
// interface with more addresses, some 80 of IPv4 or 26 of IPv6, is asked by every
// question on its link.
const maxAsked = 400

// word is a part of a frame, of size bytes.
type word struct {
	off, size int
	value     uint32
}

// How questions for an address begin.
var (
	arpFrame          = []word{{etherType, 2, unix.ETH_P_ARP}}
	solicitationFrame = []word{{etherType, 2, unix.ETH_P_IPV6}, {ip6Next, 1, icmp6}, {icmp6Type, 1, solicitation}}
)

// asksFor returns the part of a filter that accepts frames that ask for an
// address.
func asksFor(a netip.Addr) []bpf.Instruction {
	words, at := slices.Clone(arpFrame), arpTarget
	if a.Is6() {
		words, at = slices.Clone(solicitationFrame), nsTarget
	}
	for bytes := a.AsSlice(); len(bytes) > 0; bytes, at = bytes[4:], at+4 {
		words = append(words, word{at, 4, binary.BigEndian.Uint32(bytes)})
	}
	return matching(words)
}

// matching returns the part of a filter that accepts frames with all those words.
func matching(words []word) []bpf.Instruction {
	var f []bpf.Instruction
	for n, w := range words {
		toEnd := 2*(len(words)-n) - 1
		f = append(f,
			bpf.LoadAbsolute{Off: uint32(w.off), Size: w.size},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: w.value, SkipTrue: uint8(toEnd)},
		)
	}
	return append(f, bpf.RetConstant{Val: 1})
}

// errNoLinks is why a doorbell never rings.
var errNoLinks = errors.New("no link has a NIC")

// Wait returns nil after the first such packet, and an error when ctx ends or the
// doorbell is closed, and at once if there are no links. It is called once.
func (b *Doorbell) Wait(ctx context.Context) error {
	if len(b.files) == 0 {
		return errNoLinks
	}
	rung := make(chan error, len(b.files))
	for _, f := range b.files {
		go func() {
			rung <- awaitPacket(f)
		}()
	}
	stop := context.AfterFunc(ctx, func() { _ = b.Close() })
	defer stop()
	var err error
	for range b.files {
		if err = <-rung; err == nil {
			return nil
		}
	}
	return errors.Join(err, context.Cause(ctx))
}

// awaitPacket waits for a packet. A packet socket fails once with ENETDOWN when its link
// goes down, or is down already, and receives again once the link is up (Linux
// net/packet/af_packet.c: packet_notifier, packet_do_bind).
func awaitPacket(f *os.File) error {
	for {
		if _, err := f.Read(make([]byte, 1)); !errors.Is(err, unix.ENETDOWN) {
			return err
		}
	}
}

// Close ends a Wait. It may be called again.
func (b *Doorbell) Close() error {
	var errs []error
	for _, f := range b.files {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
