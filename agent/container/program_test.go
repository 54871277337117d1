package container

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A shell that executes another program after a moment is waited for until it
// has; one that is gone is not waited for.
func TestAwaitOtherProgram(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read x; exec sleep 1000")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)
	file, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	p, done := program{path: path, file: file}, make(chan struct{})
	go func() {
		defer close(done)
		p.awaitOther()
	}()
	select {
	case <-done:
		t.Error("the wait ended before the other program ran")
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := fmt.Fprintln(stdin, "go"); err != nil {
		t.Fatal(err)
	}
	<-done
	if now, err := os.Stat(path); err != nil || os.SameFile(file, now) {
		t.Errorf("the wait ended while the first program ran; error %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	started := time.Now()
	p.awaitOther()
	if took := time.Since(started); took >= execWait {
		t.Errorf("waited %v for a process that is gone", took)
	}
}
