package spawn

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Below nohup(1) SIGHUP is ignored, and a program inherits that; a handler it does
// not inherit.
func TestMain(m *testing.M) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	os.Exit(m.Run())
}

// userBase is the uid and gid that root of a target's user namespace has outside.
const userBase = 100000

// target starts a process with the namespaces of flags and gives a pidfd of it.
func target(t *testing.T, flags uintptr) *os.File {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("joining namespaces needs root")
	}
	cmd := exec.Command("/bin/sh", "-c", "echo ready; read end")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: userBase, Size: 1000}}
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// run runs a plan whose Target and Namespaces are set; the rest has defaults.
func run(t *testing.T, p *Plan) (output string, status unix.WaitStatus) {
	t.Helper()
	pid, written, err := start(t, p)
	if err != nil {
		t.Fatal(err)
	}
	output = <-written
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return output, status
}

// start starts a plan; all that it writes comes through the channel.
func start(t *testing.T, p *Plan) (int, <-chan string, error) {
	t.Helper()
	if p.Dir == "" {
		p.Dir = "/"
	}
	p.Keyring = "katabox-test"
	p.Env = append(p.Env, "PATH=/usr/bin:/bin")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.Namespaces&unix.CLONE_NEWUSER != 0 { // container.Container does the same
		if err := w.Chown(userBase, userBase); err != nil {
			t.Fatal(err)
		}
	}
	p.Stdio = [3]*os.File{null, w, w}
	pid, err := p.Start()
	_ = w.Close()
	text := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(r)
		_ = r.Close()
		text <- string(data)
	}()
	return pid, text, err
}

// ownIgnored is this process's line with the signals that it ignores, which programs
// inherit: make(1) starts it with the C library's own, 32 and 33, ignored.
func ownIgnored(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "SigIgn:") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatal("no SigIgn in /proc/self/status")
	return ""
}

const mountAndPID = unix.CLONE_NEWNS | unix.CLONE_NEWPID

func TestStart(t *testing.T) {
	fd := target(t, mountAndPID)
	umask, score := uint32(0o27), 123
	text, status := run(t, &Plan{
		Target: fd, Namespaces: mountAndPID, Dir: "/tmp", UID: 12, GID: 34, Groups: []uint32{56, 78},
		Args:  []string{"sh", "-c", `echo $0 $(id -u) $(id -g) $(id -G) $(pwd) $A $(umask) $(ulimit -n); sed -En "/^(NoNewPrivs|Sig[^Q]|Cap)/p" /proc/thread-self/status; exit 7`, "zero"},
		Env:   []string{"A=b"},
		Umask: &umask, OOMScoreAdj: &score, NoNewPrivileges: true,
		Rlimits:      []Rlimit{{unix.RLIMIT_NOFILE, 100, 200}},
		Capabilities: &Capabilities{Bounding: 1<<5 | 1<<1, Permitted: 1<<5 | 1<<1, Effective: 1 << 5, Inheritable: 1 << 5, Ambient: 1 << 5, Last: 40},
	})
	if status.ExitStatus() != 7 {
		t.Errorf("status %v", status)
	}
	want := `zero 12 34 34 56 78 /tmp b 0027 100
SigPnd:	0000000000000000
SigBlk:	0000000000000000
` + ownIgnored(t) + `
SigCgt:	0000000000000000
CapInh:	0000000000000020
CapPrm:	0000000000000020
CapEff:	0000000000000020
CapBnd:	0000000000000022
CapAmb:	0000000000000020
NoNewPrivs:	1
`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
}

// The process is in the target's PID namespace, a session of itself, and has
// no more files than its stdio.
func TestStartJoins(t *testing.T) {
	fd := target(t, mountAndPID)
	score := 321
	text, _ := run(t, &Plan{
		Target: fd, Namespaces: mountAndPID, OOMScoreAdj: &score,
		Args: []string{"/bin/sh", "-c", "mount -t proc proc /proc; echo $$; cut -d' ' -f6 /proc/$$/stat; cat /proc/$$/oom_score_adj; ls /proc/$$/fd; cat /proc/1/comm"},
	})
	if lines := strings.Fields(text); len(lines) < 6 || lines[0] != lines[1] || lines[2] != "321" || strings.Join(lines[3:], " ") != "0 1 2 sh" {
		t.Errorf("%q", text)
	}
}

// The process has the usual timer slack, not its parent's, which keeps its own.
func TestStartResetsTimerSlack(t *testing.T) {
	const ours = 4_000_000
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, ours, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	const script = "mount -t proc proc /proc; cd /proc/$$; read now <timerslack_ns; echo 0 >timerslack_ns; read usual <timerslack_ns; echo $now $usual"
	text, _ := run(t, &Plan{Target: target(t, mountAndPID), Namespaces: mountAndPID, Args: []string{"/bin/sh", "-c", script}})
	if want := "50000 50000\n"; text != want {
		t.Errorf("its slack, and the one it goes back to: %q, want %q", text, want)
	}
	if ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || ns != ours {
		t.Errorf("the parent has %d ns afterwards, %v, want %d", ns, err, ours)
	}
}

func TestStartInUserNamespace(t *testing.T) {
	flags := mountAndPID | unix.CLONE_NEWUSER
	fd := target(t, uintptr(flags))
	text, status := run(t, &Plan{
		Target: fd, Namespaces: flags, UID: 5, GID: 6, Groups: []uint32{7},
		Args:    []string{"sh", "-c", "id -u; id -g; id -G; cat /proc/self/uid_map; ulimit -Hn; echo again >/dev/stdout"},
		Rlimits: []Rlimit{{unix.RLIMIT_NOFILE, 5000, 5000}},
	})
	if got := strings.Fields(text); strings.Join(got, " ") != "5 6 6 7 0 100000 1000 5000 again" || status.ExitStatus() != 0 {
		t.Errorf("%q, %v", text, status)
	}
	_, _, err := start(t, &Plan{Target: fd, Namespaces: flags, UID: 2000, Args: []string{"true"}})
	if err == nil || err.Error() != "cannot setuid to unmapped uid 2000 in user namespace" {
		t.Error(err)
	}
}

// A user who has reached the limit of processes gets one more, as with runc: the limit
// counts when the process clones.
func TestStartAtTheLimitOfProcesses(t *testing.T) {
	flags := mountAndPID | unix.CLONE_NEWUSER
	fd := target(t, uintptr(flags)) // the user's first process
	text, status := run(t, &Plan{
		Target: fd, Namespaces: flags, Args: []string{"cat", "/proc/self/limits"},
		Rlimits: []Rlimit{{unix.RLIMIT_NPROC, 9, 9}, {unix.RLIMIT_NPROC, 1, 2}},
	})
	i := strings.Index(text, "Max processes")
	if i < 0 || status.ExitStatus() != 0 {
		t.Fatalf("%q, %v", text, status)
	}
	if got := strings.Fields(text[i:])[2:4]; strings.Join(got, " ") != "1 2" {
		t.Errorf("limits of processes %v, want 1 and 2", got)
	}
	text, status = run(t, &Plan{
		Target: fd, Namespaces: flags, Args: []string{"sh", "-c", "true & wait"}, Rlimits: []Rlimit{{unix.RLIMIT_NPROC, 1, 1}},
	})
	if status.ExitStatus() == 0 || !strings.Contains(text, "fork") {
		t.Errorf("it forked beyond the limit: %q, %v", text, status)
	}
	_, _, err := start(t, &Plan{Target: fd, Namespaces: flags, Args: []string{"true"}, Rlimits: []Rlimit{{unix.RLIMIT_NPROC, 2, 1}}})
	if err == nil || err.Error() != "error setting rlimits: invalid argument" {
		t.Error(err)
	}
}

// A program in a relative directory of PATH is refused, as by exec.LookPath, unless it
// is named by a path.
func TestStartFromRelativePath(t *testing.T) {
	fd := target(t, mountAndPID)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const refused = `exec: "program": cannot run executable found relative to current directory`
	for _, test := range []struct{ path, program, want string }{
		{".", "program", refused}, {":/bin", "program", refused}, {"/bin:../" + filepath.Base(dir) + ":" + dir, "program", refused},
		{dir + ":.", "program", ""}, {"/bin", "./program", ""},
	} {
		pid, text, err := start(t, &Plan{
			Target: fd, Namespaces: mountAndPID, Dir: dir, Args: []string{test.program}, Env: []string{"PATH=" + test.path},
		})
		reap(pid)
		if output := <-text; (err == nil) != (test.want == "") || err != nil && err.Error() != test.want || err == nil && output != "ran\n" {
			t.Errorf("PATH=%s %s: %q, %v, want %s", test.path, test.program, output, err, test.want)
		}
	}
}

func TestStartErrors(t *testing.T) {
	fd := target(t, mountAndPID)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		plan Plan
		want string
	}{
		{Plan{Args: []string{"no-such-program"}}, `exec: "no-such-program": executable file not found in $PATH`},
		{Plan{Args: []string{"/no/such"}}, `exec: "/no/such": stat /no/such: no such file or directory`},
		{Plan{Args: []string{"/tmp"}}, `exec: "/tmp": is a directory`},
		{Plan{Args: []string{file}}, fmt.Sprintf(`exec: %q: permission denied`, file)},
		{Plan{Args: []string{"true"}, Dir: "/no/such"}, `chdir to cwd ("/no/such") set in config.json failed: no such file or directory`},
		{Plan{Args: []string{"true"}, Rlimits: []Rlimit{{Resource: 99}}}, `error setting rlimits: invalid argument`},
		{Plan{Args: []string{"true"}, Terminal: true}, `set controlling terminal: inappropriate ioctl for device`},
		{Plan{Args: []string{"true"}, UID: 1<<32 - 1}, `cannot setuid to unmapped uid 4294967295 in user namespace`},
		{Plan{Args: []string{"true"}, GID: 1<<32 - 1}, `cannot setgid to unmapped gid 4294967295 in user namespace`},
		{Plan{Args: []string{"true"}, Groups: []uint32{1<<32 - 1}}, `unable to setup user: setgroups: invalid argument`},
		{Plan{Args: []string{"a\x00b"}}, `"a\x00b" contains a NUL byte: invalid argument`},
		{Plan{}, `no program: invalid argument`},
	}
	for _, test := range tests {
		test.plan.Target, test.plan.Namespaces = fd, mountAndPID
		pid, _, err := start(t, &test.plan)
		if err == nil || err.Error() != test.want {
			t.Errorf("%d, %v, want %s", pid, err, test.want)
		}
		reap(pid)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid > 0 {
		t.Errorf("process %d was left, %v", pid, err)
	}
}

func TestStartNotExecutable(t *testing.T) {
	fd := target(t, mountAndPID)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, status := run(t, &Plan{Target: fd, Namespaces: mountAndPID, Args: []string{file}})
	if want := "exec " + file + ": exec format error\n"; text != want || status.ExitStatus() != 255 {
		t.Errorf("%q, %v", text, status)
	}
}

func TestStartMany(t *testing.T) {
	fd := target(t, mountAndPID)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 25 {
				text, status := run(t, &Plan{Target: fd, Namespaces: mountAndPID, Args: []string{"sh", "-c", fmt.Sprintf("echo %d; exit %d", i, j)}})
				if text != fmt.Sprintln(i) || status.ExitStatus() != j {
					t.Errorf("%q, %v", text, status)
				}
			}
		})
	}
	wg.Wait()
}

// A target that has ended has no namespaces to join.
func TestStartWithoutTarget(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if _, _, err := start(t, &Plan{Target: f, Namespaces: mountAndPID, Args: []string{"true"}}); !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
}
