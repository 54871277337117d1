package reverse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Where the program finds what it looks at: struct bpf_sk_lookup in Linux's
// include/uapi/linux/bpf.h. The address is in network byte order, the port in
// the host's.
const (
	offFamily    = 8
	offProtocol  = 12
	offLocalIP4  = 40
	offLocalPort = 60
)

// skPass is the verdict "go on", with the socket that was picked or else with
// the kernel's own lookup (enum sk_action).
const skPass = 1

// steer makes what is sent to an IPv4 address and port come to a socket of
// another port, as Docker's rules do in a namespace: the port stays free for a
// server of a container's that listens on every address. protocol is
// IPPROTO_TCP or IPPROTO_UDP. Closing what it returns ends that.
func steer(socket syscall.Conn, protocol int32, at netip.AddrPort) (io.Closer, error) {
	if !at.Addr().Is4() {
		return nil, fmt.Errorf("steer %s: %w: want an IPv4 address", at, errors.ErrUnsupported)
	}
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{Name: "kata_reverse", Type: ebpf.SockMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("steer %s: create map: %w", at, err)
	}
	defer sockets.Close() // the program holds it
	if err := put(sockets, socket); err != nil {
		return nil, fmt.Errorf("steer %s: put socket into map: %w", at, err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "kata_reverse", Type: ebpf.SkLookup, AttachType: ebpf.AttachSkLookup,
		License: "Apache-2.0", Instructions: instructions(sockets.FD(), protocol, at),
	})
	if err != nil {
		return nil, fmt.Errorf("steer %s: load program: %w", at, err)
	}
	defer program.Close() // the link holds it
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("steer %s: %w", at, err)
	}
	defer ns.Close()
	attached, err := link.AttachNetNs(int(ns.Fd()), program)
	if err != nil {
		return nil, fmt.Errorf("steer %s: attach program: %w", at, err)
	}
	return attached, nil
}

// put gives the map a reference to the socket.
func put(m *ebpf.Map, socket syscall.Conn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = m.Put(uint32(0), uint32(fd)) })
	return errors.Join(err, failed)
}

// instructions is the program. In C's words:
//
//	if (ctx->protocol != protocol || ctx->family != AF_INET ||
//	    ctx->local_ip4 != address || ctx->local_port != port) return SK_PASS;
//	key = 0;
//	sk = bpf_map_lookup_elem(sockets, &key);
//	if (sk) { bpf_sk_assign(ctx, sk, 0); bpf_sk_release(sk); }
//	return SK_PASS;
//
// It runs where no connected socket is found, before the kernel looks for one
// that listens (net/ipv4: __inet_lookup_listener, __udp4_lib_lookup).
func instructions(sockets int, protocol int32, at netip.AddrPort) asm.Instructions {
	const key = -4 // on the stack, below the frame pointer
	ip := at.Addr().As4()
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // calls leave R6 to R9 alone
		asm.LoadMem(asm.R2, asm.R6, offProtocol, asm.Word),
		asm.JNE.Imm(asm.R2, protocol, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offFamily, asm.Word),
		asm.JNE.Imm(asm.R2, unix.AF_INET, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offLocalIP4, asm.Word),
		asm.LoadImm(asm.R3, int64(binary.NativeEndian.Uint32(ip[:])), asm.DWord), // an immediate has a sign
		asm.JNE.Reg(asm.R2, asm.R3, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offLocalPort, asm.Word),
		asm.JNE.Imm(asm.R2, int32(at.Port()), "pass"),

		asm.StoreImm(asm.RFP, key, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, sockets),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnSkAssign.Call(),
		asm.Mov.Reg(asm.R1, asm.R7), // the lookup took a reference
		asm.FnSkRelease.Call(),

		asm.Mov.Imm(asm.R0, skPass).WithSymbol("pass"),
		asm.Return(),
	}
}
