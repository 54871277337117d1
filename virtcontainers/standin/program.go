package standin

import (
	"bytes"
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// viewDir is where the program finds its root, in the mount namespace that it
// starts in.
const viewDir = "/view"

// reportFD is the descriptor on which the program reports: numbers of four
// bytes in the machine's order. The first is 0 once the program has set itself
// up, or the negative errno for which it gave up. Each later one is the number
// of a signal that it was sent.
const reportFD = 3

// loadAddress is where the program is mapped: what ld(1) takes on x86-64 too.
// Addresses below 2 GiB fit the short forms of the instructions.
const loadAddress = 0x400000

// Sizes of an ELF file's header and of an entry of its program header table
// (elf(5)).
const (
	elfHeaderSize     = 64
	programHeaderSize = 56
	codeOffset        = elfHeaderSize + programHeaderSize
)

// program is the stand-in's executable, for Linux on x86-64:
//
//	close_range(above reportFD)
//	chdir(viewDir); pivot_root(".", "."); umount2(".", MNT_DETACH); chdir("/")
//	capset(no capability); prctl(PR_SET_NO_NEW_PRIVS)
//	block all signals; ignore SIGCHLD
//	write(reportFD, 0)
//	for { write(reportFD, rt_sigtimedwait(all signals, no end)) }
//
// It is built here, so that a shim needs neither another file nor an assembler.
// Its only memory is its stack.
func program() []byte {
	// Addresses of the data depend on the length of the code, but not the other
	// way round.
	code := assemble(0)
	return executable(assemble(loadAddress + codeOffset + uint32(len(code.text))))
}

// assembler collects instructions.
type assembler struct {
	text, data []byte
	dataAt     uint32
	// fails are the offsets of jumps to the end, where failures are reported.
	fails []int
}

func assemble(dataAt uint32) *assembler {
	a := &assembler{dataAt: dataAt}
	dot := a.word([]byte(".\x00"))
	all := a.word(bytes.Repeat([]byte{0xff}, 8))
	// Other parts of the shim may have left descriptors inheritable. Kernels
	// before Linux 5.9 lack the call.
	a.call(unix.SYS_CLOSE_RANGE, reportFD+1, math.MaxUint32, 0)
	a.must(unix.SYS_CHDIR, a.word([]byte(viewDir+"\x00")))
	a.must(unix.SYS_PIVOT_ROOT, dot, dot)
	a.must(unix.SYS_UMOUNT2, dot, unix.MNT_DETACH)
	a.must(unix.SYS_CHDIR, a.word([]byte("/\x00")))
	a.must(unix.SYS_CAPSET, a.word(words(unix.LINUX_CAPABILITY_VERSION_3, 0)), a.word(make([]byte, 24)))
	a.must(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	a.must(unix.SYS_RT_SIGPROCMASK, sigSetmask, all, 0, 8)
	// struct sigaction of the kernel: handler, flags, restorer, mask. What an
	// engine starts in the PID namespace leaves no zombies.
	a.must(unix.SYS_RT_SIGACTION, uint32(unix.SIGCHLD), a.word(append([]byte{sigIgn}, make([]byte, 31)...)), 0, 8)
	a.emit(0x31, 0xc0) // xor eax, eax
	report := len(a.text)
	a.report()
	a.call(unix.SYS_RT_SIGTIMEDWAIT, all, 0, 0, 8)
	a.emit(0xeb, byte(report-len(a.text)-2)) // jmp report
	a.endFails()
	a.report()
	a.call(unix.SYS_EXIT, 1)
	return a
}

// SIG_SETMASK and SIG_IGN of asm-generic/signal-defs.h.
const (
	sigSetmask = 2
	sigIgn     = 1
)

func words(list ...uint32) []byte {
	var b []byte
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func (a *assembler) emit(code ...byte) { a.text = append(a.text, code...) }

// word adds data, 8-byte aligned within the data, and returns its address.
func (a *assembler) word(data []byte) uint32 {
	for len(a.data)%8 != 0 {
		a.data = append(a.data, 0)
	}
	at := a.dataAt + uint32(len(a.data))
	a.data = append(a.data, data...)
	return at
}

// registers are the instructions that load a constant into the register of
// each argument of a system call: mov edi, esi, edx, r10d, r8d. They clear the
// upper half.
var registers = [][]byte{{0xbf}, {0xbe}, {0xba}, {0x41, 0xba}, {0x41, 0xb8}}

// call makes a system call; its result is in eax.
func (a *assembler) call(number uint32, args ...uint32) {
	for i, arg := range args {
		a.emit(registers[i]...)
		a.emit(words(arg)...)
	}
	a.emit(0xb8) // mov eax
	a.emit(words(number)...)
	a.emit(0x0f, 0x05) // syscall
}

// must makes a system call; if that fails, the program ends.
func (a *assembler) must(number uint32, args ...uint32) {
	a.call(number, args...)
	a.emit(0x85, 0xc0, 0x0f, 0x88, 0, 0, 0, 0) // test eax, eax; js end
	a.fails = append(a.fails, len(a.text))
}

// report writes eax to reportFD.
func (a *assembler) report() {
	a.emit(0x50)             // push rax
	a.emit(0x48, 0x89, 0xe6) // mov rsi, rsp
	a.emit(0xbf)             // mov edi
	a.emit(words(reportFD)...)
	a.emit(0xba) // mov edx
	a.emit(words(4)...)
	a.emit(0xb8) // mov eax
	a.emit(words(unix.SYS_WRITE)...)
	a.emit(0x0f, 0x05, 0x58) // syscall; pop rax
}

// endFails makes the current offset the target of failures' jumps.
func (a *assembler) endFails() {
	for _, after := range a.fails {
		binary.LittleEndian.PutUint32(a.text[after-4:], uint32(len(a.text)-after))
	}
}

// executable returns an ELF file with one segment, which maps the whole file,
// readable and executable.
func executable(a *assembler) []byte {
	size := uint64(codeOffset + len(a.text) + len(a.data))
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), // ET_EXEC, EM_X86_64, EV_CURRENT
		uint64(loadAddress + codeOffset), uint64(elfHeaderSize), uint64(0), uint32(0),
		uint16(elfHeaderSize), uint16(programHeaderSize), uint16(1), uint16(0), uint16(0), uint16(0),
		// The program header: PT_LOAD, PF_R|PF_X.
		uint32(1), uint32(5), uint64(0), uint64(loadAddress), uint64(loadAddress), size, size, uint64(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, field) // writing to a Buffer never fails
	}
	b.Write(a.text)
	b.Write(a.data)
	return b.Bytes()
}
