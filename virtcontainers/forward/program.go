package forward

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Where the program finds what it looks at: struct bpf_sk_lookup in Linux's
// include/uapi/linux/bpf.h. Addresses are in network byte order.
const (
	offFamily   = 8
	offProtocol = 12
	offLocalIP4 = 40
	offLocalIP6 = 44
)

// maxExempt bounds the addresses that are left to the namespace.
const maxExempt = 8

// newExempt makes the set of such addresses. A key is an address in network
// byte order.
func newExempt() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "kata_exempt", Type: ebpf.Hash, KeySize: 4, ValueSize: 1, MaxEntries: maxExempt,
	})
	if err != nil {
		return nil, kernelError("create map of exempt addresses", err)
	}
	return m, nil
}

// skPass is the verdict "go on", with the listener that was picked or else
// with the kernel's own lookup (enum sk_action).
const skPass = 1

// steer makes new TCP connections to the namespace's loopback addresses come
// to the listeners, of which there is one for each family, IPv4's first.
// Closing what it returns ends that.
// exempt holds IPv4 addresses, as keys, that are left to the namespace.
func steer(ns *os.File, listeners []*net.TCPListener, exempt *ebpf.Map) (io.Closer, error) {
	// The kernel asks for these in this order; each holds the one before.
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "kata_forward", Type: ebpf.SockMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(len(loopbacks)),
	})
	if err != nil {
		return nil, kernelError("create map of listeners", err)
	}
	defer sockets.Close()
	for i, l := range listeners {
		if err := putSocket(sockets, uint32(i), l); err != nil {
			return nil, kernelError("put listener into map", err)
		}
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "kata_forward", Type: ebpf.SkLookup, AttachType: ebpf.AttachSkLookup,
		License: "Apache-2.0", Instructions: instructions(sockets.FD(), exempt.FD()),
	})
	if err != nil {
		return nil, kernelError("load sk_lookup program", err)
	}
	defer program.Close()
	attached, err := link.AttachNetNs(int(ns.Fd()), program)
	if err != nil {
		return nil, kernelError("attach sk_lookup program", err)
	}
	return attached, nil
}

// putSocket gives the map a reference to the listener's socket.
func putSocket(m *ebpf.Map, key uint32, l *net.TCPListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = m.Put(key, uint32(fd)) })
	return errors.Join(err, failed)
}

// instructions is the program. In C's words:
//
//	if (ctx->protocol != IPPROTO_TCP) return SK_PASS;
//	if (ctx->family == AF_INET && first byte of ctx->local_ip4 == 127) {
//		if (bpf_map_lookup_elem(exempt, &ctx->local_ip4)) return SK_PASS;
//		key = 0;
//	}
//	else if (ctx->family == AF_INET6 && ctx->local_ip6 == ::1) key = 1;
//	else return SK_PASS;
//	sk = bpf_map_lookup_elem(sockets, &key);
//	if (sk) { bpf_sk_assign(ctx, sk, 0); bpf_sk_release(sk); }
//	return SK_PASS;
//
// A program of somebody else's that picked a socket before us wins: without
// BPF_SK_LOOKUP_F_REPLACE, bpf_sk_assign leaves its choice (bpf-helpers(7)).
func instructions(sockets, exempt int) asm.Instructions {
	const key = -4 // on the stack, below the frame pointer
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // calls leave R6 to R9 alone
		asm.LoadMem(asm.R2, asm.R6, offProtocol, asm.Word),
		asm.JNE.Imm(asm.R2, unix.IPPROTO_TCP, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offFamily, asm.Word),
		asm.JEq.Imm(asm.R2, unix.AF_INET6, "v6"),
		asm.JNE.Imm(asm.R2, unix.AF_INET, "pass"),

		asm.LoadMem(asm.R2, asm.R6, offLocalIP4, asm.Byte),
		asm.JNE.Imm(asm.R2, 127, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offLocalIP4, asm.Word),
		asm.StoreMem(asm.RFP, key, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R1, exempt),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "pass"),
		asm.StoreImm(asm.RFP, key, 0, asm.Word),
		asm.Ja.Label("pick"),

		asm.LoadMem(asm.R2, asm.R6, offLocalIP6, asm.Word).WithSymbol("v6"),
		asm.JNE.Imm(asm.R2, 0, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offLocalIP6+4, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offLocalIP6+8, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "pass"),
		asm.LoadMem(asm.R2, asm.R6, offLocalIP6+12, asm.Word),
		asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.JNE.Imm(asm.R2, 1, "pass"),
		asm.StoreImm(asm.RFP, key, 1, asm.Word),

		asm.LoadMapPtr(asm.R1, sockets).WithSymbol("pick"),
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

// kernelError says what the kernel's refusal means.
func kernelError(what string, err error) error {
	return explain(what, err, errors.Join(features.HaveMapType(ebpf.SockMap), features.HaveProgramType(ebpf.SkLookup)))
}

// explain gives a refusal its kind; missing is what is known of the kernel.
// EPERM has two causes that look alike: before Linux 5.11 BPF's memory counts
// as locked, some 8 KiB for each pod (kernel/bpf/syscall.c,
// bpf_map_charge_init). The shim does not raise that limit for itself, because
// every process that it starts meanwhile would keep it.
func explain(what string, err, missing error) error {
	switch {
	case errors.Is(missing, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s: %w: the kernel has no sk_lookup programs (Linux 5.9, CONFIG_BPF_SYSCALL): %w", what, errdefs.ErrNotImplemented, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w: it takes CAP_BPF and CAP_NET_ADMIN, and before Linux 5.11 room below RLIMIT_MEMLOCK: %w", what, errdefs.ErrPermissionDenied, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
