package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// onThread calls f on a thread with its own mount namespace, which ends afterwards.
func onThread(t *testing.T, f func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("namespaces need root")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// beginning is an init that has not entered its root yet, and its ends.
type beginning struct {
	*Init
	out    *os.File // what it writes
	stdio  [3]*os.File
	root   *os.File
	reaped bool
}

// begin forks an init; p gets defaults.
func begin(t *testing.T, p *InitPlan) *beginning {
	t.Helper()
	umask := uint32(0o22)
	p.Keyring, p.Umask = "_ses.test", &umask
	if p.Dir == "" {
		p.Dir = "/"
	}
	b := &beginning{}
	onThread(t, func() (err error) {
		if b.root, err = os.Open("/"); err != nil {
			return err
		}
		b.Init, err = p.Fork()
		return err
	})
	t.Cleanup(func() { _ = b.Close(); _ = unix.Kill(b.Pid(), unix.SIGKILL); b.wait(t) })
	out, in, err := os.Pipe()
	null, err2 := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	b.out, b.stdio = out, [3]*os.File{null, in, in}
	t.Cleanup(func() { _, _, _, _ = out.Close(), in.Close(), null.Close(), b.root.Close() })
	return b
}

// enter brings it to where it waits for its start.
func (b *beginning) enter(t *testing.T, home string) {
	t.Helper()
	if err := b.AwaitMounts(); err != nil {
		t.Fatal(err)
	}
	if err := b.Enter(b.root, b.stdio, home); err != nil {
		t.Fatal(err)
	}
	_ = b.stdio[1].Close()
}

func (b *beginning) wait(t *testing.T) (status unix.WaitStatus) {
	t.Helper()
	if b.reaped {
		return status
	}
	b.reaped = true
	if _, err := unix.Wait4(b.Pid(), &status, 0, nil); err != nil {
		t.Error(err)
	}
	return status
}

// run executes the program and gives what it wrote and its end.
func (b *beginning) run(t *testing.T) (string, unix.WaitStatus) {
	t.Helper()
	if err := b.Execute(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(b.out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), b.wait(t)
}

func sh(script string) *InitPlan {
	return &InitPlan{Plan: Plan{Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}, NewPID: true}
}

// The process is the first of its namespace, sees its own proc, and has nothing of
// its parent's but its stdio.
func TestInitRuns(t *testing.T) {
	dir := t.TempDir()
	p := sh("echo $$ $HOME; umask; ls " + dir + "/$$/fd; cat " + dir + "/1/comm; cut -d: -f3 /proc/self/cgroup | sort -u; exit 7")
	p.NeedsHome = true
	p.Mounts = []Mount{{Source: "proc", Target: dir, Type: "proc"}}
	b := begin(t, p)
	b.enter(t, "/home/x")
	text, status := b.run(t)
	if want := "1 /home/x\n0022\n0\n1\n2\nsh\n/\n"; text != want {
		t.Errorf("wrote %q, want %q: its PID, HOME, umask, files, its name in its own proc, and its cgroup", text, want)
	}
	if status.ExitStatus() != 7 {
		t.Errorf("status %v, want exit 7", status)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("its mount is seen outside: %v, %v", entries, err)
	}
}

// What the agent has open must not be held open by a container that waits for its
// start: others wait for its end.
func TestInitHoldsNoFiles(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	b := begin(t, sh("true"))
	b.enter(t, "/")
	_ = in.Close()
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read %v, want EOF", err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.Pid()))
	if err != nil || len(fds) != 4 { // and the control socket
		t.Errorf("it has %d files, want 4: %v", len(fds), err)
	}
}

func TestInitFails(t *testing.T) {
	tests := map[string]struct {
		plan   func(p *InitPlan)
		mounts bool // it is the mounts that fail
		want   string
	}{
		"no program": {plan: func(p *InitPlan) { p.Args = []string{"nosuch"} }, want: `exec: "nosuch": executable file not found in $PATH`},
		"no file":    {plan: func(p *InitPlan) { p.Args = []string{"/no/such"} }, want: `exec: "/no/such": stat /no/such: no such file or directory`},
		"directory":  {plan: func(p *InitPlan) { p.Dir = "/no/dir" }, want: `chdir to cwd ("/no/dir") set in config.json failed: no such file or directory`},
		"few files": {
			plan: func(p *InitPlan) { p.Rlimits = []Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 4, Hard: 4}} },
			want: "receive the container's root and stdio: too many open files",
		},
		"mount": {
			plan:   func(p *InitPlan) { p.Mounts = []Mount{{Source: "x", Target: "/no/dir", Type: "proc"}} },
			mounts: true, want: "mount 0: no such file or directory",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := sh("true")
			test.plan(p)
			b := begin(t, p)
			err := b.AwaitMounts()
			if err == nil && !test.mounts {
				err = b.Enter(b.root, b.stdio, "/")
			}
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if status := b.wait(t); status.ExitStatus() != 255 {
				t.Errorf("status %#x, want exit 255", status)
			}
		})
	}
}

// An id that means "unchanged" to the kernel is refused: the process would be root.
func TestInitRefusesNoID(t *testing.T) {
	for want, p := range map[string]*InitPlan{
		"cannot setuid to unmapped uid 4294967295 in user namespace": {Plan: Plan{UID: 1<<32 - 1}},
		"cannot setgid to unmapped gid 4294967295 in user namespace": {Plan: Plan{GID: 1<<32 - 1}},
	} {
		p.Args, p.Dir = []string{"true"}, "/"
		i, err := p.Fork()
		if err == nil {
			_ = i.Close()
			_, _ = unix.Wait4(i.Pid(), nil, 0, nil)
		}
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A program that is found and cannot be executed is said on stderr.
func TestInitCannotExecute(t *testing.T) {
	file := t.TempDir() + "/data"
	if err := os.WriteFile(file, []byte("\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := sh("")
	p.Args = []string{file}
	b := begin(t, p)
	b.enter(t, "/")
	text, status := b.run(t)
	if want := "exec " + file + ": exec format error\n"; text != want || status.ExitStatus() != 255 {
		t.Errorf("wrote %q, status %#x; want %q, exit 255", text, status, want)
	}
}

// While it waits it ends by the signals that end runc's init, without its agent,
// and by SIGKILL; a start then says so.
func TestInitEndsWhileItWaits(t *testing.T) {
	ends := map[string]struct {
		end  func(b *beginning) error
		want func(s unix.WaitStatus) bool
	}{
		"SIGTERM": {func(b *beginning) error { return unix.Kill(b.Pid(), unix.SIGTERM) }, func(s unix.WaitStatus) bool { return s.ExitStatus() == 2 }},
		"SIGKILL": {func(b *beginning) error { return unix.Kill(b.Pid(), unix.SIGKILL) }, func(s unix.WaitStatus) bool { return s.Signal() == unix.SIGKILL }},
		"agent":   {func(b *beginning) error { return b.Close() }, func(s unix.WaitStatus) bool { return s.ExitStatus() == 255 }},
	}
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			b := begin(t, sh("true"))
			b.enter(t, "/")
			if err := unix.Kill(b.Pid(), unix.SIGUSR1); err != nil { // has no effect
				t.Fatal(err)
			}
			if err := test.end(b); err != nil {
				t.Fatal(err)
			}
			if status := b.wait(t); !test.want(status) {
				t.Errorf("status %#x", status)
			}
			if err := b.Execute(); name != "agent" && !errors.Is(err, ErrKilled) {
				t.Errorf("start: %v, want %v", err, ErrKilled)
			}
		})
	}
}

// Signals that do not end runc's init do not end it, in a shared PID namespace
// either.
func TestInitIgnoresWhileItWaits(t *testing.T) {
	for name, newPID := range map[string]bool{"own namespace": true, "shared namespace": false} {
		t.Run(name, func(t *testing.T) {
			p := sh("exit 7")
			p.NewPID = newPID
			b := begin(t, p)
			b.enter(t, "/")
			for _, signal := range []unix.Signal{unix.SIGUSR1, unix.SIGALRM, unix.SIGPIPE, unix.SIGIO, 40} {
				if err := unix.Kill(b.Pid(), signal); err != nil {
					t.Fatal(err)
				}
			}
			if _, status := b.run(t); status.ExitStatus() != 7 {
				t.Errorf("status %#x, want exit 7", status)
			}
		})
	}
}
