package reverse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/sklookup"
)

// steer directs connections or datagrams to an IPv4 address and port to a
// socket at another port, as Docker's rules do in a namespace: the port stays
// free for a container's server that listens on all addresses. protocol is
// IPPROTO_TCP or IPPROTO_UDP. Closing the result ends it.
func steer(socket syscall.Conn, protocol int32, at netip.AddrPort) (io.Closer, error) {
	if !at.Addr().Is4() {
		return nil, fmt.Errorf("steer %s: %w: want an IPv4 address", at, errors.ErrUnsupported)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("steer %s: %w", at, err)
	}
	defer ns.Close()
	steering, err := sklookup.Attach(ns, "kata_reverse", []syscall.Conn{socket}, match(protocol, at))
	if err != nil {
		return nil, fmt.Errorf("steer %s: %w", at, err)
	}
	return steering, nil
}

// match picks the socket for one address. In C:
//
//	if (ctx->protocol != protocol || ctx->family != AF_INET ||
//	    ctx->local_ip4 != address || ctx->local_port != port) return SK_PASS;
//	key = 0;
func match(protocol int32, at netip.AddrPort) asm.Instructions {
	ip := at.Addr().As4()
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffProtocol, asm.Word),
		asm.JNE.Imm(asm.R2, protocol, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffFamily, asm.Word),
		asm.JNE.Imm(asm.R2, unix.AF_INET, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalIP4, asm.Word),
		asm.LoadImm(asm.R3, int64(binary.NativeEndian.Uint32(ip[:])), asm.DWord), // immediates are signed
		asm.JNE.Reg(asm.R2, asm.R3, sklookup.Pass),
		asm.LoadMem(asm.R2, asm.R6, sklookup.OffLocalPort, asm.Word),
		asm.JNE.Imm(asm.R2, int32(at.Port()), sklookup.Pass),
		asm.StoreImm(asm.RFP, sklookup.Key, 0, asm.Word),
	}
}
