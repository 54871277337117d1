package contain

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// fileCalls are the system calls of package passthrough.
var fileCalls = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_CLOSE, unix.SYS_STATX, unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_FSTATFS,
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_LSEEK,
	unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_UNLINKAT, unix.SYS_SYMLINKAT, unix.SYS_LINKAT, unix.SYS_RENAMEAT2,
	unix.SYS_READLINKAT, unix.SYS_GETDENTS64,
	unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT, unix.SYS_TRUNCATE, unix.SYS_FTRUNCATE, unix.SYS_UMASK,
	unix.SYS_FALLOCATE, unix.SYS_COPY_FILE_RANGE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNCFS,
	unix.SYS_GETXATTR, unix.SYS_SETXATTR, unix.SYS_LISTXATTR, unix.SYS_REMOVEXATTR,
	unix.SYS_FCNTL, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_CAPSET,
}

// waitCalls are those with which the threads wait for requests.
var waitCalls = []uint32{unix.SYS_EPOLL_PWAIT}

// runtimeCalls are those that Go's runtime may make on any thread
// (runtime/sys_linux_*.s, os_linux.go). It does not start threads from a locked
// one, so clone is not among them.
var runtimeCalls = []uint32{
	unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MPROTECT, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_PRCTL,
	unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETRANDOM,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RESTART_SYSCALL,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// Offsets in the data that a filter sees (seccomp(2), struct seccomp_data).
const (
	offsetCall = 0
	offsetArch = 4
	offsetPID  = 16 // the first argument's low word, on x86
)

// filterCalls installs the filter for the calling thread only.
func filterCalls(peer *Peer) error {
	program, err := filter(peer)
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("set seccomp filter: %w", errno)
	}
	return nil
}

// memoryCalls are allowed only on a peer.
var memoryCalls = []uint32{unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV}

// onPeer allows memoryCalls on a peer. The kernel uses the low word alone of the
// first argument, which is an int (mm/process_vm_access.c).
func onPeer(peer *Peer) []bpf.Instruction {
	if peer == nil {
		return nil
	}
	return []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: memoryCalls[0], SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: memoryCalls[1], SkipTrue: 3},
		bpf.LoadAbsolute{Off: offsetPID, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(peer.PID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
	}
}

// filter returns the program: it allows only this architecture's calls that are
// in the lists.
func filter(peer *Peer) ([]unix.SockFilter, error) {
	allowed := append(append(append([]uint32{}, fileCalls...), waitCalls...), runtimeCalls...)
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AUDIT_ARCH_X86_64, SkipTrue: 1},
		refuse,
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
	}
	code = append(code, onPeer(peer)...)
	for i, call := range allowed {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipTrue: uint8(len(allowed) - i)})
	}
	code = append(code, refuse, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	raw, err := bpf.Assemble(code)
	if err != nil {
		return nil, fmt.Errorf("assemble seccomp filter: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}
