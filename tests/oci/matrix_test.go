package oci

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The same commands in the same order, with runc and with kata-runtime: codes,
// states, output and pid files are the same.
func TestSameAsRunc(t *testing.T) { sameAsRunc(t, play) }

// sameAsRunc calls play with runc and with kata-runtime, and compares what it
// noted.
func sameAsRunc(t *testing.T, play func(t *testing.T, program string) []string) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skip("runc is not installed")
	}
	want := play(t, runc)
	got := play(t, suite.kata)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runc (-) and kata-runtime (+):\n%s", diff)
	}
}

// play takes one container through its life and notes what each command said.
func play(t *testing.T, program string) (rows []string) {
	t.Helper()
	r := newRuntime(t, program)
	note := func(name string, args ...string) {
		t.Helper()
		res := r.call(args...)
		failed := ""
		if res.code != 0 && strings.TrimSpace(res.errors) == "" {
			failed = ", and nothing on stderr"
		}
		rows = append(rows, fmt.Sprintf("%s: %d %q%s", name, res.code, res.out, failed))
	}
	status := func(name string) {
		t.Helper()
		s := r.state("c1")
		rows = append(rows, fmt.Sprintf("%s: %s %s, has a pid %v", name, s.ID, s.Status, s.PID != 0))
	}
	bundle := r.bundle("trap 'exit 43' TERM; echo ready; while :; do sleep 0.1; done", nil)
	pidFile := filepath.Join(t.TempDir(), "pid")
	note("state of none", "state", "c1")
	note("start of none", "start", "c1")
	note("no bundle", "create", "--bundle", "/nowhere", "c1")
	note("odd id", "create", "--bundle", bundle, "a/b")

	out := create(t)
	null := open(t, os.DevNull)
	code := r.command([3]*os.File{null, out, out}, "create", "--bundle", bundle, "--pid-file", pidFile, "c1")
	if code != 0 {
		t.Fatalf("%s create: %d %s", program, code, content(t, out))
	}
	pid := r.pid(pidFile)
	status("created")
	note("same id", "create", "--bundle", bundle, "c1")
	note("start", "start", "c1")
	status("started")
	awaitText(t, out, "ready")
	note("start again", "start", "c1")
	note("exec", "exec", "c1", "echo", "hi")
	note("exec exits", "exec", "c1", "sh", "-c", "exit 7")
	note("exec of nothing", "exec", "c1", "/nosuch")
	note("exec with environment", "exec", "--cwd", "/bin", "--env", "A=b", "c1", "sh", "-c", "echo $A $PWD")
	rows = append(rows, "exec with input: "+execWithInput(t, r))
	rows = append(rows, fmt.Sprintf("detached exec: %d", execDetached(t, r)))
	note("delete", "delete", "c1")
	note("pause", "pause", "c1")
	status("paused")
	note("exec while paused", "exec", "c1", "echo", "hi")
	note("resume", "resume", "c1")
	status("resumed")
	note("update", "update", "--pids-limit", "20", "c1")
	note("update in megabytes", "update", "--memory", "64M", "--blkio-weight", "500", "c1")
	note("flag after the id", "update", "c1", "--pids-limit", "30")
	note("odd signal", "kill", "c1", "NOPE")
	note("quiet list", "list", "-q")
	note("kill", "kill", "c1", "TERM")
	rows = append(rows, fmt.Sprintf("exit: %d", reap(t, pid)))
	status("ended")
	note("kill again", "kill", "c1", "KILL")
	note("kill all again", "kill", "--all", "c1", "KILL")
	note("events after the end", "events", "c1")
	note("start after the end", "start", "c1")
	note("exec after the end", "exec", "c1", "echo", "hi")
	note("delete", "delete", "c1")
	note("delete again", "delete", "c1")
	note("delete by force", "delete", "c1", "--force")
	return append(rows, pipeline(t, r))
}

// pipeline runs "yes | head -1" and says how yes ended: without a reader it
// gets SIGPIPE.
func pipeline(t *testing.T, r *runtime) string {
	t.Helper()
	pidFile := filepath.Join(t.TempDir(), "pid")
	bundle := r.bundle("yes; echo yes has ended with $? >&2; exit 6", nil)
	outR, outW := pipe(t)
	errs, null := create(t), open(t, os.DevNull)
	if code := r.command([3]*os.File{null, outW, errs}, "create", "--bundle", bundle, "--pid-file", pidFile, "p1"); code != 0 {
		t.Fatalf("create: %d %s", code, content(t, errs))
	}
	_ = outW.Close()
	if res := r.call("start", "p1"); res.code != 0 {
		t.Fatalf("start: %+v", res)
	}
	if _, err := io.ReadFull(outR, make([]byte, 2)); err != nil {
		t.Error(err)
	}
	_ = outR.Close()
	row := fmt.Sprintf("pipeline: exit %d, %q", reap(t, r.pid(pidFile)), content(t, errs))
	if res := r.call("delete", "--force", "p1"); res.code != 0 {
		t.Errorf("delete: %+v", res)
	}
	return row
}

// execWithInput runs "echo word | exec c1 cat": the input has ended before the
// process begins.
func execWithInput(t *testing.T, r *runtime) string {
	t.Helper()
	inR, inW := pipe(t)
	if _, err := io.WriteString(inW, "word\n"); err != nil {
		t.Fatal(err)
	}
	_ = inW.Close()
	out := create(t)
	code := r.command([3]*os.File{inR, out, out}, "exec", "c1", "cat")
	return fmt.Sprintf("%d %q", code, content(t, out))
}

// execDetached runs a process as conmon does and returns its exit code.
func execDetached(t *testing.T, r *runtime) int {
	t.Helper()
	dir := t.TempDir()
	process := `{"args":["sh","-c","exit 3"],"cwd":"/","env":["PATH=/bin"],"user":{"uid":0,"gid":0}}`
	if err := os.WriteFile(filepath.Join(dir, "process"), []byte(process), 0o600); err != nil {
		t.Fatal(err)
	}
	res := r.call("exec", "--pid-file", filepath.Join(dir, "pid"), "--process", filepath.Join(dir, "process"), "--detach", "c1")
	if res.code != 0 {
		t.Fatalf("exec: %+v", res)
	}
	return reap(t, r.pid(filepath.Join(dir, "pid")))
}

func awaitText(t *testing.T, f *os.File, want string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(content(t, f), want); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q does not come: %q", want, content(t, f))
		}
	}
}

// Input and output are the caller's pipes, each copied to its end. SIGKILL of
// the pid that the caller knows ends a container. Two containers of one pod, by
// Podman's annotations, are in one machine.
func TestStreamsAndPod(t *testing.T) {
	r := newRuntime(t, suite.kata)
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	errs := create(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	bundle := r.bundle("cat; echo end >&2; exec sleep 1000", nil)
	if code := r.command([3]*os.File{inR, outW, errs}, "create", "--bundle", bundle, "--pid-file", pidFile, "pod"); code != 0 {
		t.Fatalf("create: %d %s", code, content(t, errs))
	}
	pid := r.pid(pidFile)
	_ = inR.Close()
	_ = outW.Close()
	if res := r.call("start", "pod"); res.code != 0 {
		t.Fatalf("start: %+v", res)
	}
	wantNoRights(t, pid)
	text := strings.Repeat("0123456789abcde\n", 1<<15) // more than pipes hold
	go func() {
		_, _ = io.WriteString(inW, text)
		_ = inW.Close()
	}()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(outR, got); err != nil || string(got) != text {
		t.Errorf("%d bytes of %d came, %v", n, len(text), err)
	}
	awaitText(t, errs, "end")
	joinPod(t, r)
	joinProcesses(t, r)
	if shims := len(processesOf(r.root)); shims != 1 {
		t.Errorf("%d shims run for one pod: %v", shims, processesOf(r.root))
	}
	if p, err := os.FindProcess(pid); err != nil || p.Kill() != nil {
		t.Errorf("kill monitor: %v", err)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	for deadline := time.Now().Add(patience); r.state("pod").Status != "stopped"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the container outlives its monitor")
		}
	}
	for _, id := range []string{"c3", "c2", "c1", "pod"} {
		if res := r.call("delete", "--force", id); res.code != 0 {
			t.Errorf("delete %s: %+v", id, res)
		}
	}
}

// joinProcesses runs a container in the pod, and another in the PID namespace
// of the first one, which is named as engines do.
func joinProcesses(t *testing.T, r *runtime) {
	t.Helper()
	in := map[string]string{"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": "pod"}
	pidFile := filepath.Join(t.TempDir(), "pid")
	first := r.bundle("exec sleep 777", func(s *specs.Spec) { s.Annotations = in })
	if res := r.call("create", "--bundle", first, "--pid-file", pidFile, "c2"); res.code != 0 {
		t.Fatalf("create in the pod: %+v", res)
	}
	if res := r.call("start", "c2"); res.code != 0 {
		t.Fatalf("start in the pod: %+v", res)
	}
	second := r.bundle("for i in $(seq 100); do grep sleep.777 /proc/1/cmdline && exit 6; sleep 0.1; done", func(s *specs.Spec) {
		s.Annotations = in
		path := fmt.Sprintf("/proc/%d/ns/pid", r.pid(pidFile))
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.PIDNamespace })
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: path})
	})
	out, null := create(t), open(t, os.DevNull)
	pidFile = filepath.Join(t.TempDir(), "pid")
	if code := r.command([3]*os.File{null, out, out}, "create", "--bundle", second, "--pid-file", pidFile, "c3"); code != 0 {
		t.Fatalf("create in the PID namespace: %d %s", code, content(t, out))
	}
	if res := r.call("start", "c3"); res.code != 0 {
		t.Fatalf("start in the PID namespace: %+v", res)
	}
	if code := reap(t, r.pid(pidFile)); code != 6 {
		t.Errorf("exit code %d, output %q", code, content(t, out))
	}
}

// joinPod runs a container to its end in the pod's machine.
func joinPod(t *testing.T, r *runtime) {
	t.Helper()
	pidFile := filepath.Join(t.TempDir(), "pid")
	bundle := r.bundle("echo hello from the pod; exit 5", func(s *specs.Spec) {
		s.Annotations = map[string]string{"io.kubernetes.cri-o.SandboxID": "pod"} // Podman 5.4's; Podman 4.3 gives a type too
	})
	out, null := create(t), open(t, os.DevNull)
	if code := r.command([3]*os.File{null, out, out}, "create", "--bundle", bundle, "--pid-file", pidFile, "c1"); code != 0 {
		t.Fatalf("create in the pod: %d %s", code, content(t, out))
	}
	if res := r.call("start", "c1"); res.code != 0 {
		t.Errorf("start in the pod: %+v", res)
	}
	if code := reap(t, r.pid(pidFile)); code != 5 || content(t, out) != "hello from the pod\n" {
		t.Errorf("exit code %d, output %q", code, content(t, out))
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})
	return r, w
}
