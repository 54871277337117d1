package guesttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// prober is this program's name in a container, where it tries to make sockets.
const prober = "/bin/vsockprober"

// No container can make an AF_VSOCK socket, in any way: it would reach the
// host's listeners.
func TestGuestContainersHaveNoVsock(t *testing.T) {
	m := guestOnly(t)
	// The guest itself can make both; otherwise the refusals would prove
	// nothing.
	if own := asked(unix.AF_VSOCK); own != answers(nil) {
		t.Errorf("the guest itself: %q, want %q", own, answers(nil))
	}
	for name, change := range map[string]func(*specs.Spec){
		"plain": func(*specs.Spec) {}, "privileged": privileged, "user namespace": inUserNamespace,
	} {
		for family, want := range map[string]string{"vsock": answers(unix.EAFNOSUPPORT), "inet": answers(nil)} {
			spec := probing(family)
			change(spec)
			if r := m.run(t, "prober", spec); r.out != want || r.exit.GetStatus() != 0 {
				t.Errorf("%s container, %s: %+v, want %q", name, family, r, want)
			}
			m.forget("prober")
		}
	}
}

// A 32-bit program has another system call for it.
func TestGuestContainersHaveNoVsockBySocketcall(t *testing.T) {
	m := guestOnly(t)
	for family, want := range map[byte]uint32{unix.AF_VSOCK: uint32(unix.EAFNOSUPPORT), unix.AF_INET: 0} {
		if err := os.WriteFile("/rootfs/bin/socketcall", socketcall(family), 0o755); err != nil {
			t.Fatal(err)
		}
		spec := shell("")
		spec.Process.Args = []string{"socketcall"}
		if r := m.run(t, "socketcall", spec); r.exit.GetStatus() != want {
			t.Errorf("family %d: %+v, want status %d", family, r, want)
		}
		m.forget("socketcall")
	}
}

// The refusal also applies to execs, and to a process that has left its cgroup
// namespace.
func TestGuestExecsHaveNoVsock(t *testing.T) {
	m := guestOnly(t)
	spec := probing("vsock")
	args := spec.Process.Args
	spec.Process.Args = []string{"sleep", "1000"}
	privileged(spec)
	m.start(t, "idle", spec)
	want := answers(unix.EAFNOSUPPORT)
	p := process("")
	p.Args = args
	if r := m.exec(t, "idle", "prober", p); r.out != want {
		t.Errorf("exec: %+v, want %q", r, want)
	}
	p = process("mount -t cgroup2 none /tmp; mkdir -p /tmp/x; echo 0 >/tmp/x/cgroup.procs; exec " + prober + " vsock")
	p.Capabilities = spec.Process.Capabilities
	if r := m.exec(t, "idle", "mover", p); !strings.Contains(r.out, want) {
		t.Errorf("exec that moves: %+v, want %q", r, want)
	}
}

// probing returns a container that tries to make sockets of a family.
func probing(family string) *specs.Spec {
	spec := shell("")
	spec.Process.Args = []string{prober, family}
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: prober, Type: "bind", Source: "/" + program, Options: []string{"bind", "ro"}})
	return spec
}

// privileged removes an engine's confinement from a container.
func privileged(spec *specs.Spec) {
	var caps []string
	for _, name := range strings.Fields("CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE " +
		"NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN " +
		"SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG " +
		"WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE") {
		caps = append(caps, "CAP_"+name)
	}
	spec.Process.NoNewPrivileges = false
	spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths, spec.Linux.Seccomp = nil, nil, nil
	spec.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
}

// probe is the program in the container.
func probe() int {
	family := map[string]int{"vsock": unix.AF_VSOCK, "inet": unix.AF_INET}[os.Args[1]]
	fmt.Print(asked(family))
	return 0
}

// asked tries to make a socket in each way that a 64-bit program has.
func asked(family int) string {
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return fmt.Sprintf("socket: %v\nio_uring: %v\n", err, socketByRing(family))
}

// answers returns asked's result if each way ends with err.
func answers(err error) string { return fmt.Sprintf("socket: %[1]v\nio_uring: %[1]v\n", err) }

// Of include/uapi/linux/io_uring.h.
const (
	opSocket       = 45 // IORING_OP_SOCKET
	offSQRing      = 0
	offSQEs        = 0x10000000
	singleMmap     = 1 // IORING_FEAT_SINGLE_MMAP
	enterGetEvents = 1
	paramsSize     = 120
	sqeSize        = 64
)

// socketByRing makes a socket with io_uring.
func socketByRing(family int) error {
	var params [paramsSize]byte
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return fmt.Errorf("set up io_uring: %w", errno)
	}
	defer unix.Close(int(ring))
	field := func(at int) uint32 { return binary.NativeEndian.Uint32(params[at:]) }
	if field(20)&singleMmap == 0 {
		return errors.New("io_uring has two rings")
	}
	const page = 4096
	rings, err := unix.Mmap(int(ring), offSQRing, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(rings)
	sqes, err := unix.Mmap(int(ring), offSQEs, sqeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(sqes)
	sqes[0] = opSocket
	binary.NativeEndian.PutUint32(sqes[4:], uint32(family))      // fd
	binary.NativeEndian.PutUint64(sqes[8:], unix.SOCK_STREAM)    // off
	const sqOff, cqOff, tail, array, cqes = 40, 80, 4, 24, 20    // in struct io_uring_params
	binary.NativeEndian.PutUint32(rings[field(sqOff+array):], 0) // the first entry
	binary.NativeEndian.PutUint32(rings[field(sqOff+tail):], 1)
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, ring, 1, 1, enterGetEvents, 0, 0); errno != 0 {
		return fmt.Errorf("enter io_uring: %w", errno)
	}
	result := int32(binary.NativeEndian.Uint32(rings[field(cqOff+cqes)+8:]))
	if result < 0 {
		return unix.Errno(-result)
	}
	return unix.Close(int(result))
}

// socketcall is a 32-bit ELF program that makes a socket with socketcall(2) and
// exits with the errno, or 0.
func socketcall(family byte) []byte {
	const base, head = 0x08048000, 52 + 32
	code := []byte{
		0x6a, 0, 0x6a, unix.SOCK_STREAM, 0x6a, family, // push protocol, type, family
		0x89, 0xe1, // mov ecx, esp
		0xb8, 102, 0, 0, 0, // mov eax, SYS_socketcall
		0xbb, 1, 0, 0, 0, // mov ebx, SYS_SOCKET
		0xcd, 0x80, // int 0x80
		0x31, 0xdb, // xor ebx, ebx
		0x85, 0xc0, // test eax, eax
		0x79, 4, // jns over the next two
		0x89, 0xc3, // mov ebx, eax
		0xf7, 0xdb, // neg ebx
		0xb8, 1, 0, 0, 0, // mov eax, SYS_exit
		0xcd, 0x80,
	}
	size := uint32(head + len(code))
	le := binary.LittleEndian
	elf := append([]byte("\x7fELF\x01\x01\x01"), make([]byte, 9)...)
	elf = le.AppendUint16(le.AppendUint16(elf, 2), 3)         // ET_EXEC, EM_386
	for _, word := range []uint32{1, base + head, 52, 0, 0} { // version, entry, phoff, shoff, flags
		elf = le.AppendUint32(elf, word)
	}
	for _, half := range []uint16{52, 32, 1, 0, 0, 0} {
		elf = le.AppendUint16(elf, half)
	}
	for _, word := range []uint32{1, 0, base, base, size, size, 5, 0x1000} { // PT_LOAD, read and execute
		elf = le.AppendUint32(elf, word)
	}
	return append(elf, code...)
}
