package container

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Containers must not reach the host by AF_VSOCK: with the kernel's vhost-vsock,
// every listener of the host at VMADDR_CID_HOST or VMADDR_CID_ANY accepts
// connections from every process of every guest. A seccomp filter is not enough:
// it cannot read the arguments of 32-bit socketcall(2), and it does not see
// io_uring's IORING_OP_SOCKET. Both call this function.
const socketCreate = "security_socket_create"

// Where the program finds the function's arguments (security/security.c, int
// security_socket_create(int family, int type, int protocol, int kern)): each
// has eight bytes.
const (
	offSocketFamily = 0
	offSocketKernel = 24
)

// parentLevel is the depth of cgroupParent below the root.
const parentLevel = 1

// RefuseVsock has the kernel refuse AF_VSOCK, with EAFNOSUPPORT as if it had none,
// to every process below cgroupParent, whatever its capabilities, until this
// process ends. It needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF).
func RefuseVsock() error {
	if err := makeParent(); err != nil {
		return fmt.Errorf("refuse AF_VSOCK to containers: make cgroup: %w", err)
	}
	var parent unix.Stat_t
	if err := unix.Stat(parentDir, &parent); err != nil {
		return fmt.Errorf("refuse AF_VSOCK to containers: inspect cgroup: %w", err)
	}
	target, err := kernelFunction(socketCreate)
	if err != nil {
		return fmt.Errorf("refuse AF_VSOCK to containers: find %s: %w", socketCreate, err)
	}
	if err := modifyReturn(target, vsockProgram(parent.Ino)); err != nil {
		return fmt.Errorf("refuse AF_VSOCK to containers: %w", err)
	}
	return nil
}

// vsockProgram is, in C's words:
//
//	if (family != AF_VSOCK || kern ||
//	    bpf_get_current_ancestor_cgroup_id(parentLevel) != parent) return 0;
//	return -EAFNOSUPPORT;
//
// Zero goes on to the function itself. The id of a cgroup is its directory's
// inode number (Documentation/admin-guide/cgroup-v2.rst names it so for BPF).
func vsockProgram(parent uint64) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, offSocketFamily, asm.Word),
		asm.JNE.Imm(asm.R2, unix.AF_VSOCK, "pass"),
		asm.LoadMem(asm.R2, asm.R1, offSocketKernel, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "pass"),
		asm.Mov.Imm(asm.R1, parentLevel),
		asm.FnGetCurrentAncestorCgroupId.Call(),
		asm.LoadImm(asm.R1, int64(parent), asm.DWord),
		asm.JNE.Reg(asm.R0, asm.R1, "pass"),
		asm.Mov.Imm(asm.R0, -int32(unix.EAFNOSUPPORT)),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("pass"),
		asm.Return(),
	}
}

// kernelFunction is the BTF id of one of the kernel's functions.
func kernelFunction(name string) (uint32, error) {
	data, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		return 0, err
	}
	return findFunction(data, name)
}

// byteOrder is the one of guests, which are amd64. (Package asm does not take
// binary.NativeEndian.)
var byteOrder = binary.LittleEndian

// loadAttr is union bpf_attr of BPF_PROG_LOAD (include/uapi/linux/bpf.h) as far
// as attach_btf_id, with pointers where the kernel has 64-bit addresses: Go may
// move a stack, and follows pointers only. Package ebpf takes a function by its
// name alone, for which it reads all of the kernel's types: a third of a second
// on a slow host.
type loadAttr struct {
	progType, insnCount         uint32
	insns, license              unsafe.Pointer
	logLevel, logSize           uint32
	logBuf                      uint64
	kernVersion, progFlags      uint32
	name                        [16]byte
	ifIndex, expectedAttachType uint32
	progBTF, funcInfoSize       uint32
	funcInfo                    uint64
	funcInfoCount, lineInfoSize uint32
	lineInfo                    uint64
	lineInfoCount, attachBTFID  uint32
}

// modifyReturn loads the program and attaches it before the function with that
// id. It stays for as long as the agent has the link's descriptor, which it never closes.
func modifyReturn(function uint32, instructions asm.Instructions) error {
	var code bytes.Buffer
	if err := instructions.Marshal(&code, byteOrder); err != nil {
		return fmt.Errorf("encode program: %w", err)
	}
	insns, license := code.Bytes(), []byte("Apache-2.0\x00")
	attr := loadAttr{
		progType: uint32(ebpf.Tracing), expectedAttachType: uint32(ebpf.AttachModifyReturn), attachBTFID: function,
		insnCount: uint32(len(insns) / asm.InstructionSize), insns: unsafe.Pointer(&insns[0]), license: unsafe.Pointer(&license[0]),
	}
	copy(attr.name[:], "kata_no_vsock")
	program, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer unix.Close(program) // the link holds it
	open := struct {
		name    uint64
		program uint32
		_       uint32
	}{program: uint32(program)}
	if _, err := bpf(unix.BPF_RAW_TRACEPOINT_OPEN, unsafe.Pointer(&open), unsafe.Sizeof(open)); err != nil {
		return fmt.Errorf("attach program: %w", err)
	}
	return nil
}

// bpf is bpf(2); its descriptors are closed on exec(2).
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
