package descriptors

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusedEnv has the error with which the kernel of the test's child answers
// close_range.
const refusedEnv = "KATABOX_TEST_REFUSED"

func TestMain(m *testing.M) {
	if name := os.Getenv(refusedEnv); name != "" {
		os.Exit(beOld(map[string]unix.Errno{"EINVAL": unix.EINVAL, "ENOSYS": unix.ENOSYS, "none": 0}[name]))
	}
	os.Exit(m.Run())
}

// Linux 5.9 and 5.10 have close_range without the flag, and older ones do not have it.
func TestKeepFromChildren(t *testing.T) {
	for _, refused := range []string{"none", "EINVAL", "ENOSYS"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), refusedEnv+"="+refused)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("close_range answers with %s: %v: %s", refused, err, out)
		}
	}
}

// beOld checks which descriptors of a process would be inherited.
func beOld(refused unix.Errno) int {
	runtime.LockOSThread()
	var fds [6]int // none is close-on-exec
	for i := range fds {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		if err != nil {
			return fail("open: %v", err)
		}
		fds[i] = fd
	}
	if refused != 0 {
		if err := refuseCloseRange(refused); err != nil {
			return fail("filter: %v", err)
		}
	}
	first := fds[3]
	if err := KeepFromChildren(first); err != nil {
		return fail("%v", err)
	}
	for _, fd := range fds {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || (flags&unix.FD_CLOEXEC != 0) != (fd >= first) {
			return fail("descriptor %d has the flags %d, %v; the first to be kept is %d", fd, flags, err, first)
		}
	}
	return 0
}

func fail(format string, args ...any) int {
	fmt.Printf(format+"\n", args...)
	return 1
}

// refuseCloseRange has the kernel answer all of this process's calls of close_range
// with an error (seccomp(2)).
func refuseCloseRange(errno unix.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLOSE_RANGE, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return failed
	}
	return nil
}
