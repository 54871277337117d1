package container

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// An init that was killed before the agent opens it has left its mount namespace. The
// container is made all the same, and its start tells of the death.
func TestOpenInitThatWasKilled(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	init, err := openInit(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if init.mounts.fd >= 0 {
		t.Error("it has a mount namespace: the test is wrong")
	}
	if err := init.close(passBarriers); err != nil {
		t.Error(err)
	}
}
