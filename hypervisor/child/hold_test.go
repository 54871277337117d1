package child

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The process id of an ended child stays its own while it is held, and is not
// given out afterwards.
func TestHold(t *testing.T) {
	p, err := Start(Options{Path: "/bin/sleep", Args: []string{"3600"}})
	if err != nil {
		t.Fatal(err)
	}
	pid, ok := p.Hold()
	if !ok || pid != p.Pid() {
		t.Fatalf("hold: %d, %v", pid, ok)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("the held process was reaped: %v", err)
	}
	p.Release()
	await(t, p)
	if pid, ok := p.Hold(); ok {
		t.Errorf("process %d can be held although it was reaped", pid)
	}
}

// A holder that never releases does not keep the child from being reaped, and
// its id can no longer be held then.
func TestHoldForever(t *testing.T) {
	p, err := Start(Options{Path: "/bin/sleep", Args: []string{"3600"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Hold(); !ok {
		t.Fatal("it cannot be held")
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, p)
	if pid, ok := p.Hold(); ok {
		t.Errorf("process %d can be held although it was reaped", pid)
	}
	p.Release()
}
