package persist

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// withoutDescriptors keeps this process from opening anything until restore is called.
func withoutDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max})
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
}

// sleeper starts a process, which ends with the test.
func sleeper(t *testing.T) Process {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A process that cannot be looked at is not taken for one that is gone: what it has
// would be removed under it.
func TestLackOfDescriptorsIsNoDeath(t *testing.T) {
	p := sleeper(t)
	restore := withoutDescriptors(t)
	alive, orphaned := p.Alive(), (&Record{Shim: p}).Orphaned()
	errs := map[string]error{
		"Signal": p.Signal(unix.SIGTERM),
		"Kill":   p.Kill(time.Millisecond),
		"Await":  p.Await(time.Millisecond),
	}
	restore()
	if !alive || orphaned {
		t.Errorf("it counts as alive: %v, its pod as orphaned: %v", alive, orphaned)
	}
	for name, err := range errs {
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: %v, want %v", name, err, unix.EMFILE)
		}
	}
	if !p.Alive() {
		t.Error("it was killed")
	}
}

// A lack of descriptors that passes in time fails no kill.
func TestKillOutlastsALackOfDescriptors(t *testing.T) {
	p := sleeper(t)
	restored := make(chan struct{})
	restore := withoutDescriptors(t)
	time.AfterFunc(5*lackPause, func() {
		defer close(restored)
		restore()
	})
	err := p.Kill(time.Minute)
	<-restored
	if err != nil || p.Alive() {
		t.Errorf("it is alive: %v, error %v", p.Alive(), err)
	}
}

// A record that cannot be written, as on a full disk, leaves nothing.
func TestCreateWithoutRoom(t *testing.T) {
	root := t.TempDir()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	s, err := Create(root, Owner{}, "s")
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if s != nil || !errors.Is(err, unix.EFBIG) {
		t.Errorf("%v, %v, want %v", s, err, unix.EFBIG)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
