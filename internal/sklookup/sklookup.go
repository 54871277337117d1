// Package sklookup steers connections and datagrams to sockets that do not own
// their address, with a BPF program of type sk_lookup (Linux 5.9). The program
// runs in one network namespace, when no connected socket matches and before the
// kernel looks for a listening one (net/ipv4: __inet_lookup_listener,
// __udp4_lib_lookup). The shim uses it to steer a pod's loopback ports, and the
// agent to steer the port of an engine's resolver.
package sklookup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Offsets in the program's context, to which R6 points: struct bpf_sk_lookup in
// Linux's include/uapi/linux/bpf.h. Addresses are in network byte order, the
// port is in the host's.
const (
	OffFamily    = 8
	OffProtocol  = 12
	OffLocalIP4  = 40
	OffLocalIP6  = 44
	OffLocalPort = 60
)

const (
	// Key is the offset, from the frame pointer, of the index of the socket to
	// use: a 32-bit word on the stack.
	Key = -4
	// Pick is the label at which the socket at Key is used. A match that falls
	// through continues there.
	Pick = "pick"
	// Pass is the label of the kernel's own lookup.
	Pass = "pass"
)

// skPass is the verdict to continue, with the picked socket or else with the
// kernel's own lookup (enum sk_action).
const skPass = 1

// Attach runs match for every lookup in a network namespace, to pick one of the
// sockets, to which the kernel keeps its own references. match finds the context
// in R6 and must not change that register. name is shown by tools that list
// programs. Closing the result, or the end of this process, ends the steering;
// the caller keeps ownership of the sockets and ns.
//
// Errors wrap the kernel's errno; EPERM also means that CAP_BPF or CAP_NET_ADMIN
// is missing.
func Attach[S syscall.Conn](ns *os.File, name string, sockets []S, match asm.Instructions) (io.Closer, error) {
	// The kernel requires this order; each refers to the one before.
	table, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: name, Type: ebpf.SockMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(len(sockets)),
	})
	if err != nil {
		return nil, fmt.Errorf("create map of sockets: %w", err)
	}
	defer table.Close()
	for i, socket := range sockets {
		if err := put(table, uint32(i), socket); err != nil {
			return nil, fmt.Errorf("put socket into map: %w", err)
		}
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SkLookup, AttachType: ebpf.AttachSkLookup,
		License: "Apache-2.0", Instructions: instructions(table.FD(), match),
	})
	if err != nil {
		return nil, fmt.Errorf("load sk_lookup program: %w", err)
	}
	defer program.Close()
	attached, err := link.AttachNetNs(int(ns.Fd()), program)
	if err != nil {
		return nil, fmt.Errorf("attach sk_lookup program: %w", err)
	}
	return attached, nil
}

// put gives the map a reference to the socket.
func put(m *ebpf.Map, key uint32, socket syscall.Conn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = m.Put(key, uint32(fd)) })
	return errors.Join(err, failed)
}

// instructions is the program around a match. In C's words:
//
//	match: if (...) return SK_PASS;
//	sk = bpf_map_lookup_elem(sockets, &key);
//	if (sk) { bpf_sk_assign(ctx, sk, 0); bpf_sk_release(sk); }
//	return SK_PASS;
//
// The choice of an earlier program wins: without BPF_SK_LOOKUP_F_REPLACE,
// bpf_sk_assign does not replace it (bpf-helpers(7)).
func instructions(sockets int, match asm.Instructions) asm.Instructions {
	program := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)} // calls preserve R6 to R9
	program = append(program, match...)
	return append(program,
		asm.LoadMapPtr(asm.R1, sockets).WithSymbol(Pick),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, Key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, Pass),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnSkAssign.Call(),
		asm.Mov.Reg(asm.R1, asm.R7), // the lookup took a reference
		asm.FnSkRelease.Call(),

		asm.Mov.Imm(asm.R0, skPass).WithSymbol(Pass),
		asm.Return(),
	)
}
