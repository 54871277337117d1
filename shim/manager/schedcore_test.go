package manager

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest/files"
)

// coreDomain returns the domain of a process's first thread; 0 is none.
func coreDomain(pid int) (cookie uint64, err error) {
	err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(pid), unix.PR_SCHED_CORE_SCOPE_THREAD, uintptr(unsafe.Pointer(&cookie)))
	return cookie, err
}

// With containerd's sched_core a daemon is in its own domain of core scheduling. Where
// the kernel cannot do that, it is not started.
func TestCoreDomain(t *testing.T) {
	host := newHost(t)
	asDaemon(t, host.RunDir)
	t.Setenv(schedCoreEnv, "1")
	p := newParams(t, host.RunDir, "pod", nil)
	p.schedCore = true
	own, missing := coreDomain(0)
	address, err := start(p)
	if missing != nil {
		if err == nil || !strings.Contains(err.Error(), "sched_core") || !errors.Is(err, missing) {
			t.Errorf("the kernel has no core scheduling: %v, want %v", err, missing)
		}
		if left, err := os.ReadDir(p.SocketDir); err == nil && len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	pid, service := files.ShimPID(t, p.Bundle), connect(t, address)
	if got, err := coreDomain(pid); err != nil || got == 0 || got == own {
		t.Errorf("the daemon is in domain %#x, %v; this process in %#x", got, err, own)
	}
	if got, err := coreDomain(0); err != nil || got != own {
		t.Errorf("this process is in domain %#x, %v; was in %#x", got, err, own)
	}
	if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: "pod"}); err != nil {
		t.Error(err)
	}
	reap(t, pid)
}

// What a domain's thread starts has the thread's attributes, and no other thread has
// them: here a nice value, which fork copies like a domain.
func TestStartInDomain(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	nice := func(pid int) int {
		raised, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
		if err != nil {
			t.Error(err)
		}
		return 20 - raised
	}
	before := nice(os.Getpid())
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleSleep)
	err = startInDomain(cmd, func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, before+3) })
	if err != nil {
		t.Fatal(err)
	}
	if got := nice(cmd.Process.Pid); got != before+3 {
		t.Errorf("the child has nice value %d, want %d", got, before+3)
	}
	if got := nice(os.Getpid()); got != before {
		t.Errorf("this process has nice value %d, had %d", got, before)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // killed
	refused := exec.Command(self)
	if err := startInDomain(refused, func() error { return errInjected }); !errors.Is(err, errInjected) || refused.Process != nil {
		t.Errorf("without a domain: %v, process %v", err, refused.Process)
	}
}

// The variable is passed on by start, and a daemon reads it too.
func TestSchedCoreIsRead(t *testing.T) {
	for _, action := range []string{ActionStart, ActionServe} {
		for value, want := range map[string]bool{"": false, "1": true} {
			args := []string{"-namespace", "test", "-id", "pod", "-bundle", "/b"}
			if action != "" {
				args = append(args, action)
			}
			p, err := ParseArgs(args, func(name string) string {
				if name == schedCoreEnv {
					return value
				}
				return ""
			})
			if err != nil || p.schedCore != want {
				t.Errorf("%q, %s=%q: %v, %v", action, schedCoreEnv, value, p, err)
			}
		}
	}
}
