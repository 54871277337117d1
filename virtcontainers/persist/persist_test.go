package persist

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestRecordSurvives(t *testing.T) {
	root := t.TempDir()
	s, err := Create(root, Owner{}, "s1")
	if err != nil {
		t.Fatal(err)
	}
	want := &Record{Version: Version, SandboxID: "s1", VM: Process{PID: 7, Start: 9}, NetNS: "/netns"}
	err = s.Update(func(r *Record) { r.VM, r.NetNS = want.VM, want.NetNS })
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(root, "s1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(root, "s1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed record: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, content := range []string{"", "{", `{"version":99}`} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "s"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "s", fileName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(root, "s"); err == nil {
			t.Errorf("%q was read", content)
		}
	}
}

func TestKillOnlyTheSameProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := Process{PID: p.PID, Start: p.Start + 1}
	if err := other.Kill(time.Second); err != nil || !p.Alive() {
		t.Fatalf("a process of another start time was killed: %v", err)
	}
	if err := p.Kill(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	if p.Alive() {
		t.Error("the process is alive after its end")
	}
	if err := p.Kill(time.Second); err != nil {
		t.Errorf("killing it again: %v", err)
	}
}

// A killed process is waited for until its last thread has ended: its first one
// is a zombie before that.
func TestKillEndsAllThreads(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envFirstThreadEnds+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); p.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its first thread has not ended")
		}
	}
	gone := func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	}
	if gone() {
		t.Fatal("it has no other thread")
	}
	if err := p.Await(50 * time.Millisecond); err == nil {
		t.Error("it counts as gone")
	}
	if err := KillAll(10*time.Second, Process{}, p, p); err != nil || !gone() {
		t.Errorf("gone %v, error %v", gone(), err)
	}
}

// envFirstThreadEnds makes the test's program a process whose first thread ends.
const envFirstThreadEnds = "KATABOX_TEST_FIRST_THREAD_ENDS"

func init() { // on the first thread, which init keeps
	if os.Getenv(envFirstThreadEnds) == "" {
		return
	}
	runtime.LockOSThread()
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread() // its own thread
		close(started)
		time.Sleep(time.Hour)
	}()
	<-started
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// A removal that began some time ago is found until it has succeeded, or there
// is another pod.
func TestAbandoned(t *testing.T) {
	root, owner := t.TempDir(), Owner{Namespace: "n"}
	create := func() {
		t.Helper()
		s, err := Create(root, owner, "pod")
		if err == nil {
			err = s.Update(func(r *Record) { r.Shim = Process{PID: os.Getpid(), Start: 1} }) // was another's
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, owner Owner, age time.Duration, want ...string) {
		t.Helper()
		got, err := Abandoned(root, owner, age)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", what, got, err, want)
		}
	}
	name := owner.Name("pod")
	if err := BeginRemoval(root, name); err != nil {
		t.Errorf("without a record: %v", err)
	}
	create()
	check("a pod", owner, 0)
	if err := BeginRemoval(root, name); err != nil {
		t.Fatal(err)
	}
	check("its removal", owner, 0, "pod")
	check("its removal now", owner, time.Hour)
	check("another's", Owner{Namespace: "other"}, 0)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(root, name, removalFile), old, old); err != nil {
		t.Fatal(err)
	}
	check("an old removal", owner, time.Hour, "pod")
	if err := BeginRemoval(root, name); err != nil {
		t.Fatal(err)
	}
	check("it began again", owner, time.Hour)
	create()
	check("another pod", owner, 0)
	if err := errors.Join(BeginRemoval(root, name), Remove(root, name)); err != nil {
		t.Fatal(err)
	}
	check("removed", owner, 0)
}
