package network

import (
	"context"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/containerd/log"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// passSockets lets what belongs to a connected socket of the namespace pass to the
// host's stack, before the redirect: Docker's resolver, a process of the host, asks
// other servers by such sockets, and so does any program that enters the namespace.
// To find the sender's next hop the stack needs the neighbours' answers: the host and
// the guest each get a copy. Without the filter the pod has all but that, so a kernel
// without it is no error: it is logged once. It must be called before the redirect is
// added.
func (n *Network) passSockets(ctx context.Context, p *plan, to int, as direction) error {
	added, err := n.tryAddSockets(ctx, p.link.index, p.want.Sockets)
	if !added {
		return err
	}
	p.made.Sockets = p.want.Sockets
	for _, sel := range []*netlink.TcU32Sel{arpAnswer(), neighbourAnswer()} {
		if err := n.ns.addCopy(p.link.index, to, as, p.want.Priority, sel); err != nil {
			return fmt.Errorf("answers of neighbours: %w", err)
		}
	}
	return nil
}

// tryAddSockets is addSockets. Its failure is logged once, unless the link is gone.
func (n *Network) tryAddSockets(ctx context.Context, index int, priority uint16) (added bool, err error) {
	if err = n.ns.addSockets(index, priority); err == nil || isGone(err) {
		return err == nil, err
	}
	if n.tellOnce("sockets") {
		log.G(ctx).WithError(err).Warn("processes of the host in the pod's network namespace, such as Docker's DNS resolver, get no answers from outside")
	}
	return false, nil
}

// addSockets gives a link the filter that runs socketProgram on what it receives.
func (ns *namespace) addSockets(index int, priority uint16) error {
	program, err := ebpf.NewProgram(socketSpec())
	if err != nil {
		return fmt.Errorf("load program that finds sockets (Linux 5.2, CAP_BPF): %w", err)
	}
	defer program.Close() // the filter keeps it
	f := socketFilter(index, priority)
	f.Fd, f.Name, f.DirectAction = program.FD(), socketName, true
	if err := ns.FilterAdd(f); err != nil {
		return fmt.Errorf("add filter that finds sockets (CONFIG_NET_CLS_BPF): %w", err)
	}
	return nil
}

// socketName is what tools show for program and filter.
const socketName = "kata_sockets"

func socketSpec() *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{Name: socketName, Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: socketProgram()}
}

// removeSockets removes addSockets' filter, if it exists.
func (ns *namespace) removeSockets(index int, priority uint16) error {
	if err := ns.FilterDel(socketFilter(index, priority)); err != nil && !noSuchQdisc(err) {
		return fmt.Errorf("remove filter that finds sockets: %w", err)
	}
	return nil
}

func socketFilter(index int, priority uint16) *netlink.BpfFilter {
	return &netlink.BpfFilter{Fd: -1, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: ingressParent, Priority: priority, Protocol: unix.ETH_P_ALL,
	}}
}

// arpAnswer matches ARP replies (RFC 826), whose EtherType precedes the header.
func arpAnswer() *netlink.TcU32Sel {
	return &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: []netlink.TcU32Key{
		{Off: -4, Mask: 0x0000ffff, Val: unix.ETH_P_ARP},
		{Off: 4, Mask: 0x0000ffff, Val: 2},
	}}
}

// neighbourAnswer matches IPv6 neighbour advertisements (RFC 4861).
func neighbourAnswer() *netlink.TcU32Sel {
	return &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: []netlink.TcU32Key{
		{Off: -4, Mask: 0x0000ffff, Val: unix.ETH_P_IPV6},
		{Off: 4, Mask: 0x0000ff00, Val: unix.IPPROTO_ICMPV6 << 8},
		{Off: 40, Mask: 0xff000000, Val: 136 << 24},
	}}
}

// Offsets in the program's context, struct __sk_buff, and in struct bpf_sock
// (include/uapi/linux/bpf.h).
const (
	skbProtocol    = 16 // in network byte order
	skbVLANPresent = 20
	sockState      = 72
)

// States of a socket (include/net/tcp_states.h). A connected UDP socket has the
// first.
const (
	stateEstablished = 1
	stateListen      = 10
)

// socketProgram returns TC_ACT_OK, which ends the filters, for a packet of TCP or
// UDP to a socket of the namespace that is connected to the packet's sender, and
// TC_ACT_UNSPEC, which goes on to the redirect, for all others. In C:
//
//	if (skb->vlan_present) return TC_ACT_UNSPEC;
//	if (skb->protocol == htons(ETH_P_IP)) {
//		read from the frame: struct iphdr ip, and the ports;
//		if (ip.version != 4 || ip.ihl != 5 || is a fragment) return TC_ACT_UNSPEC;
//	} else if (skb->protocol == htons(ETH_P_IPV6)) read struct ipv6hdr, and the ports;
//	else return TC_ACT_UNSPEC;
//	sk = TCP ? bpf_skc_lookup_tcp(...) : UDP ? bpf_sk_lookup_udp(...) : NULL;
//	return sk && (TCP ? sk->state != TCP_LISTEN : sk->state == TCP_ESTABLISHED) ? TC_ACT_OK : TC_ACT_UNSPEC;
//
// In both headers the addresses are last and the ports follow: together they are
// what the lookups take, struct bpf_sock_tuple. A listening socket, or an unbound
// one, gets nothing: the guest's ports are the guest's.
func socketProgram() asm.Instructions {
	return append(readTuple(),
		// R2 is the tuple, R3 its length, R8 the protocol.
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("look"),
		asm.Mov.Imm(asm.R4, -1), // BPF_F_CURRENT_NETNS
		asm.Mov.Imm(asm.R5, 0),
		asm.JEq.Imm(asm.R8, unix.IPPROTO_UDP, "udp"),
		asm.JNE.Imm(asm.R8, unix.IPPROTO_TCP, "next"),
		asm.FnSkcLookupTcp.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.LoadMem(asm.R7, asm.R0, sockState, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.FnSkRelease.Call(),
		asm.JEq.Imm(asm.R7, stateListen, "next"),
		asm.Ja.Label("pass"),

		asm.FnSkLookupUdp.Call().WithSymbol("udp"),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.LoadMem(asm.R7, asm.R0, sockState, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.FnSkRelease.Call(),
		asm.JNE.Imm(asm.R7, stateEstablished, "next"),

		asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_OK)).WithSymbol("pass"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_UNSPEC)).WithSymbol("next"),
		asm.Return(),
	)
}

// The program reads the frame, after the Ethernet header of 14 bytes, to the end of
// its stack, so that the ports are last.
const (
	etherHeader = 14
	ip4Read     = 24 // all of the header, without options, and the ports
	ip4Tuple    = 12
	ip6Read     = 40 // from the header's fifth byte, and the ports
	ip6Tuple    = 36
)

// readTuple is socketProgram's first part.
func readTuple() asm.Instructions {
	load := func(offset, length int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, offset),
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, -length),
			asm.Mov.Imm(asm.R4, length),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, "next"),
		}
	}
	tuple := func(length int32) asm.Instructions {
		return asm.Instructions{asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -length), asm.Mov.Imm(asm.R3, length)}
	}
	program := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // calls preserve R6 to R9
		asm.LoadMem(asm.R2, asm.R6, skbVLANPresent, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "next"),
		asm.LoadMem(asm.R2, asm.R6, skbProtocol, asm.Word),
		asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.JEq.Imm(asm.R2, unix.ETH_P_IPV6, "ip6"),
		asm.JNE.Imm(asm.R2, unix.ETH_P_IP, "next"),
	}
	program = append(program, load(etherHeader, ip4Read)...)
	program = append(program,
		asm.LoadMem(asm.R2, asm.RFP, -ip4Read, asm.Byte),
		asm.JNE.Imm(asm.R2, 0x45, "next"),
		asm.LoadMem(asm.R2, asm.RFP, -ip4Read+6, asm.Half),
		asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.And.Imm(asm.R2, 0x3fff), // more fragments, or an offset
		asm.JNE.Imm(asm.R2, 0, "next"),
		asm.LoadMem(asm.R8, asm.RFP, -ip4Read+9, asm.Byte),
	)
	program = append(program, tuple(ip4Tuple)...)
	program = append(program, asm.Ja.Label("look"))
	six := load(etherHeader+4, ip6Read)
	six[0] = six[0].WithSymbol("ip6")
	program = append(program, six...)
	program = append(program, asm.LoadMem(asm.R8, asm.RFP, -ip6Read+2, asm.Byte))
	return append(program, tuple(ip6Tuple)...)
}
