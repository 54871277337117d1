package oci

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An engine gives up a creation while the machine boots, as Podman does after Ctrl-C.
// When the command has ended, nothing of the machine is left, and the same container
// can be created.
func TestCancelledCreate(t *testing.T) {
	r := newRuntime(t, suite.kata)
	const id = "kbcancelled"
	dir := r.bundle("exit 7", nil)
	cmd := exec.Command(r.program, "--root", r.root, "create", "--bundle", dir, id)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	for deadline := time.Now().Add(patience); len(processesOf("sandbox-"+id)) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no machine has been started")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("a cancelled creation succeeded: %s", errs.String())
	}
	for _, line := range append(processesOf("sandbox-"+id), processesOf(r.root)...) {
		t.Errorf("left: %s", line)
	}
	if res := r.call("create", "--bundle", dir, id); res.code != 0 {
		t.Errorf("create again: %+v", res)
	}
	if res := r.call("delete", "--force", id); res.code != 0 {
		t.Errorf("delete: %+v", res)
	}
}
