package standin

import (
	"bytes"
	"math"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/tinyprogram"
)

// viewDir is where the program finds its root, in the mount namespace that it
// starts in.
const viewDir = "/view"

// reportFD is the descriptor on which the program reports: numbers of four
// bytes in the machine's order. The first is 0 once the program has set itself
// up, or the negative errno with which it failed. Each later one is the number of a
// signal that it received.
const reportFD = 3

// program is the stand-in's executable, for Linux on x86-64:
//
//	close_range(above reportFD)
//	chdir(viewDir); pivot_root(".", "."); umount2(".", MNT_DETACH); chdir("/")
//	capset(no capability); prctl(PR_SET_NO_NEW_PRIVS)
//	block all signals; ignore SIGCHLD
//	write(reportFD, 0)
//	for { write(reportFD, rt_sigtimedwait(all signals, no end)) }
//
// It ends when a write fails. The shim was then killed, and before the stand-in
// asked the kernel to be killed with it: otherwise it would live on, and spin on
// the SIGPIPE of each write.
//
// It uses no memory but its stack.
func program() []byte {
	return tinyprogram.Build(func(a *tinyprogram.Assembler) { assemble(&assembler{Assembler: a}) })
}

// assembler adds to an Assembler what is this program's alone.
type assembler struct {
	*tinyprogram.Assembler
	// fails are the offsets of jumps to where failures are reported, ends those
	// of jumps to the end.
	fails, ends []int
}

func assemble(a *assembler) {
	dot := a.Word([]byte(".\x00"))
	all := a.Word(bytes.Repeat([]byte{0xff}, 8))
	// Other parts of the shim may have left descriptors inheritable. Kernels
	// before Linux 5.9 lack the call.
	a.Call(unix.SYS_CLOSE_RANGE, reportFD+1, math.MaxUint32, 0)
	a.must(unix.SYS_CHDIR, a.Word([]byte(viewDir+"\x00")))
	a.must(unix.SYS_PIVOT_ROOT, dot, dot)
	a.must(unix.SYS_UMOUNT2, dot, unix.MNT_DETACH)
	a.must(unix.SYS_CHDIR, a.Word([]byte("/\x00")))
	a.must(unix.SYS_CAPSET, a.Word(tinyprogram.Words(unix.LINUX_CAPABILITY_VERSION_3, 0)), a.Word(make([]byte, 24)))
	a.must(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	a.must(unix.SYS_RT_SIGPROCMASK, sigSetmask, all, 0, 8)
	// struct sigaction of the kernel: handler, flags, restorer, mask. What an
	// engine starts in the PID namespace leaves no zombies.
	a.must(unix.SYS_RT_SIGACTION, uint32(unix.SIGCHLD), a.Word(append([]byte{sigIgn}, make([]byte, 31)...)), 0, 8)
	a.Emit(0x31, 0xc0) // xor eax, eax
	report := a.Len()
	a.report()
	a.Call(unix.SYS_RT_SIGTIMEDWAIT, all, 0, 0, 8)
	a.Emit(0xeb, byte(report-a.Len()-2)) // jmp report
	a.land(a.fails)
	a.report()
	a.land(a.ends)
	a.Exit(1)
}

// SIG_SETMASK and SIG_IGN of asm-generic/signal-defs.h.
const (
	sigSetmask = 2
	sigIgn     = 1
)

// must makes a system call; if that fails, the program reports it and ends.
func (a *assembler) must(number uint32, args ...uint32) {
	a.Call(number, args...)
	a.fails = append(a.fails, a.jumpIfNegative())
}

// jumpIfNegative jumps if eax is negative, to a place that is still open: land
// sets it. It returns the offset after the jump.
func (a *assembler) jumpIfNegative() int {
	a.Emit(0x85, 0xc0, 0x0f, 0x88, 0, 0, 0, 0) // test eax, eax; js
	return a.Len()
}

// land makes the current offset the target of jumps.
func (a *assembler) land(jumps []int) {
	for _, after := range jumps {
		a.PutOffset(after, a.Len())
	}
}

// report writes eax to reportFD, and ends the program if that fails.
func (a *assembler) report() {
	a.Emit(0x50)             // push rax
	a.Emit(0x48, 0x89, 0xe6) // mov rsi, rsp
	a.Emit(0xbf)             // mov edi
	a.Emit(tinyprogram.Words(reportFD)...)
	a.Emit(0xba) // mov edx
	a.Emit(tinyprogram.Words(4)...)
	a.Emit(0xb8) // mov eax
	a.Emit(tinyprogram.Words(unix.SYS_WRITE)...)
	a.Emit(0x0f, 0x05) // syscall
	a.ends = append(a.ends, a.jumpIfNegative())
	a.Emit(0x58) // pop rax
}
