package harness

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A child with its own session looks like an orphan, but its parent needs its
// exit code.
func TestReaperLeavesOwnChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 7")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	wait, err := StartOwn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	reapOrphans()
	_ = wait()
	if got := cmd.ProcessState.ExitCode(); got != 7 {
		t.Errorf("exit code %d: want 7", got)
	}
}
