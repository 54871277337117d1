package procmem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// instruction is SYSCALL.
var instruction = []byte{0x0f, 0x05}

// noCall is ORIG_RAX of a thread that is not in a system call: the kernel does not
// change its registers then (arch/x86/kernel/signal.c).
const noCall = ^uint64(0)

// errNoCall means that a thread runs, or that the instruction is not what it
// should be.
var errNoCall = errors.New("it does not wait in a system call")

// call has the thread make a system call of three arguments. The result is as the
// kernel has it: an error is negative.
//
// With its own registers back the thread is in its own system call again, which has
// ended for the stop. When it is let go the kernel looks for signals (kernel/ptrace.c,
// __ptrace_unlink), finds none, and has the call made again, as after any signal
// without a handler.
func (t *tracee) call(number, a, b, c uint64) (int64, error) {
	var own unix.PtraceRegs
	if err := unix.PtraceGetRegs(t.tid, &own); err != nil {
		return 0, fmt.Errorf("read registers: %w", err)
	}
	if err := t.checkInCall(&own); err != nil {
		return 0, err
	}
	regs := own
	regs.Rip -= uint64(len(instruction))
	regs.Orig_rax, regs.Rax, regs.Rdi, regs.Rsi, regs.Rdx = noCall, number, a, b, c
	ret, err := t.run(&regs)
	if setErr := unix.PtraceSetRegs(t.tid, &own); setErr != nil {
		err = errors.Join(err, fmt.Errorf("put registers back: %w", setErr))
	}
	return ret, err
}

// checkInCall returns an error for a thread that is not in a system call.
func (t *tracee) checkInCall(regs *unix.PtraceRegs) error {
	if regs.Orig_rax == noCall {
		return errNoCall
	}
	code := make([]byte, len(instruction))
	local := []unix.Iovec{{Base: &code[0], Len: uint64(len(code))}}
	remote := []unix.RemoteIovec{{Base: uintptr(regs.Rip) - uintptr(len(code)), Len: len(code)}}
	if _, err := unix.ProcessVMReadv(t.pid, local, remote, 0); err != nil {
		return fmt.Errorf("read its code: %w", err)
	}
	if !bytes.Equal(code, instruction) {
		return errNoCall
	}
	return nil
}

// run sets the registers and lets the thread make one system call. From then on the
// thread must stop again before its own registers can be put back: it has callTime.
func (t *tracee) run(regs *unix.PtraceRegs) (int64, error) {
	t.until = time.Now().Add(callTime)
	if err := unix.PtraceSetRegs(t.tid, regs); err != nil {
		return 0, fmt.Errorf("set registers: %w", err)
	}
	for range 2 { // its begin and its end
		if err := unix.PtraceSyscall(t.tid, 0); err != nil {
			return 0, os.NewSyscallError("ptrace syscall", err)
		}
		if err := t.await(isSyscall, unix.PtraceSyscall); err != nil {
			return 0, err
		}
	}
	var after unix.PtraceRegs
	if err := unix.PtraceGetRegs(t.tid, &after); err != nil {
		return 0, fmt.Errorf("read result: %w", err)
	}
	return int64(after.Rax), nil
}
