package command_test

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/command"
)

// told records what a reaper is told.
type told struct{ began, done []int }

func (c *told) Begin() func(int) { return func(pid int) { c.began = append(c.began, pid) } }

func (c *told) Done(pid int) { c.done = append(c.done, pid) }

// The reaper is told of the program, or that there is none.
func TestChildren(t *testing.T) {
	var children told
	cmd := exec.Command("true")
	if err := command.Start(cmd, &children); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if err := command.Wait(cmd, &children); err != nil {
		t.Error(err)
	}
	if err := command.Start(exec.Command("/no/such/program"), &children); err == nil {
		t.Error("a program that is not there was started")
	}
	if b, d := children.began, children.done; len(b) != 2 || b[0] != pid || b[1] != 0 || len(d) != 1 || d[0] != pid {
		t.Errorf("the reaper was told of %v, and that %v are done; want %d and 0, %d", b, d, pid, pid)
	}
}

// The program has the usual timer slack, not that of the thread that starts it,
// which keeps its own.
func TestTimerSlack(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with the test
	const ours = 4_000_000
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, ours, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "cd /proc/$$; read now <timerslack_ns; echo 0 >timerslack_ns; read usual <timerslack_ns; echo $now $usual")
	var out strings.Builder
	cmd.Stdout = &out
	var children told
	if err := command.Start(cmd, &children); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(cmd, &children); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "50000 50000\n"; got != want {
		t.Errorf("its slack, and the one it goes back to: %q, want %q", got, want)
	}
	if ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || ns != ours {
		t.Errorf("the thread's slack is %d, %v, want %d", ns, err, ours)
	}
}
