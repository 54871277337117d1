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
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/sklookup"
)

// maxExempt bounds the addresses that are left to the namespace.
const maxExempt = 8

// newExempt makes the set of those addresses. A key is an address in network
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

// steer directs new TCP connections to the namespace's loopback addresses to
// the listeners, one for each family, IPv4's first, until its result is closed.
// The keys of exempt are IPv4 addresses that are left to the namespace.
func steer(ns *os.File, listeners []*net.TCPListener, exempt *ebpf.Map) (io.Closer, error) {
	steering, err := sklookup.Attach(ns, "kata_forward", listeners, match(exempt.FD()))
	if err != nil {
		return nil, kernelError("steer connections to listeners", err)
	}
	return steering, nil
}

// match picks a listener for loopback addresses. In C:
//
//	if (ctx->protocol != IPPROTO_TCP) return SK_PASS;
//	if (ctx->family == AF_INET && first byte of ctx->local_ip4 == 127) {
//		if (bpf_map_lookup_elem(exempt, &ctx->local_ip4)) return SK_PASS;
//		key = 0;
//	}
//	else if (ctx->family == AF_INET6 && ctx->local_ip6 == ::1) key = 1;
//	else return SK_PASS;
func match(exempt int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffProtocol, asm.Word),
		asm.JNE.Imm(asm.R2, unix.IPPROTO_TCP, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffFamily, asm.Word),
		asm.JEq.Imm(asm.R2, unix.AF_INET6, "v6"),
		asm.JNE.Imm(asm.R2, unix.AF_INET, sklookup.Pass),

		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalIP4, asm.Byte),
		asm.JNE.Imm(asm.R2, 127, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalIP4, asm.Word),
		asm.StoreMem(asm.RFP, sklookup.Key, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R1, exempt),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, sklookup.Key),
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, sklookup.Pass),
		asm.StoreImm(asm.RFP, sklookup.Key, 0, asm.Word),
		asm.Ja.Label(sklookup.Pick),

		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalIP6, asm.Word).WithSymbol("v6"),
		asm.JNE.Imm(asm.R2, 0, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalIP6+4, asm.Word),
		asm.JNE.Imm(asm.R2, 0, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalIP6+8, asm.Word),
		asm.JNE.Imm(asm.R2, 0, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalIP6+12, asm.Word),
		asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.JNE.Imm(asm.R2, 1, sklookup.Pass),
		asm.StoreImm(asm.RFP, sklookup.Key, 1, asm.Word),
	}
}

// kernelError explains why the kernel refused.
func kernelError(what string, err error) error {
	return explain(what, err, errors.Join(features.HaveMapType(ebpf.SockMap), features.HaveProgramType(ebpf.SkLookup)))
}

// explain gives a refusal its errdefs kind; missing is the result of probing
// the kernel. EPERM has two causes that look alike: lacking capabilities and,
// before Linux 5.11, RLIMIT_MEMLOCK. BPF's memory counted as locked then, some
// 8 KiB for each pod (kernel/bpf/syscall.c, bpf_map_charge_init). The shim does
// not raise that limit for itself, because every process that it starts
// meanwhile would keep it.
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
