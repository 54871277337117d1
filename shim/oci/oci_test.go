package oci

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

const patience = 30 * time.Second

// newBundle makes an engine's bundle.
func newBundle(t *testing.T, change func(*specs.Spec)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bundle")
	if err := fakeguest.WriteBundle(dir, map[string]string{"org.example": "1"}); err != nil {
		t.Fatal(err)
	}
	if change == nil {
		return dir
	}
	name := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	change(&spec)
	if data, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// create makes a container and returns its monitor's pid from the pid file.
func create(t *testing.T, r *Runtime, id string, o CreateOptions) int {
	t.Helper()
	o.PIDFile = filepath.Join(t.TempDir(), "pid")
	if err := r.Create(t.Context(), id, o); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(o.PIDFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// reap waits for a child and computes its exit code as conmon does.
func reap(t *testing.T, pid int) int {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var status unix.WaitStatus
		got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
		switch {
		case err != nil || time.Now().After(deadline):
			t.Fatalf("monitor %d does not end: %v", pid, err)
		case got == pid && status.Signaled():
			return 128 + int(status.Signal())
		case got == pid:
			return status.ExitStatus()
		}
	}
}

func wantStatus(t *testing.T, r *Runtime, id string, want specs.ContainerState) *State {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		state, err := r.State(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if state.Status == want {
			return state
		}
		if time.Now().After(deadline) {
			t.Fatalf("container is %s, want %s", state.Status, want)
		}
	}
}

// A container's life as an engine sees it.
func TestLife(t *testing.T) {
	r, ctx := newRuntime(t), t.Context()
	dir := newBundle(t, nil)
	pid := create(t, r, "c1", CreateOptions{Bundle: dir})
	state := wantStatus(t, r, "c1", Created)
	if state.PID != pid || state.Bundle != dir || state.Annotations["org.example"] != "1" || state.Rootfs != filepath.Join(dir, "rootfs") {
		t.Errorf("state %+v, want pid %d and bundle %s", state, pid, dir)
	}
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || string(cmdline) != "true\x00" {
		t.Errorf("the monitor shows itself as %q, %v", cmdline, err)
	}
	if err := r.Create(ctx, "c1", CreateOptions{Bundle: dir}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second container of that id: %v", err)
	}
	if err := r.Start(ctx, "c1"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, r, "c1", Running)
	if err := r.Start(ctx, "c1"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("started twice: %v", err)
	}
	if err := r.Delete(ctx, "c1", false); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "not stopped: running") {
		t.Errorf("deleted while it runs: %v", err)
	}
	if pids, err := r.Pids(ctx, "c1"); err != nil || len(pids) != 1 || pids[0] != pid {
		t.Errorf("pids %v, %v; want %d", pids, err, pid)
	}
	if err := r.Kill(ctx, "c1", 9, false); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if state := wantStatus(t, r, "c1", Stopped); state.PID != 0 {
		t.Errorf("a container that has stopped has pid %d", state.PID)
	}
	if err := r.Kill(ctx, "c1", 9, false); err == nil || !strings.Contains(err.Error(), "container not running") {
		t.Errorf("killed again: %v", err)
	}
	if err := r.Delete(ctx, "c1", false); err != nil {
		t.Error(err)
	}
	if err := r.Delete(ctx, "c1", false); !errdefs.IsNotFound(err) {
		t.Errorf("deleted again: %v", err)
	}
	if err := r.Delete(ctx, "c1", true); err != nil {
		t.Errorf("deleted again, by force: %v", err)
	}
}

// SIGKILL to the pid that the engine knows ends the container, as with runc,
// whether it runs or waits for start.
func TestMonitorKilled(t *testing.T) {
	for _, started := range []bool{false, true} {
		r := newRuntime(t)
		pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
		if started {
			if err := r.Start(t.Context(), "c1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code := reap(t, pid); code != 137 {
			t.Errorf("exit code %d, want 137", code)
		}
		wantStatus(t, r, "c1", Stopped)
		if err := r.Start(t.Context(), "c1"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("started without a monitor: %v", err)
		}
		if err := r.Delete(t.Context(), "c1", false); err != nil {
			t.Error(err)
		}
	}
}

// A signal to that pid reaches the container.
func TestSignalsArePassedOn(t *testing.T) {
	r := newRuntime(t)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, pid); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
}

// The shim dies: the monitor ends, and delete cleans up.
func TestShimKilled(t *testing.T) {
	r := newRuntime(t)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := unix.Kill(files.ShimPID(t, r.dir("c1")), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	wantStatus(t, r, "c1", Stopped)
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Error(err)
	}
}

// Engines name the PID namespace of another container of the pod by the pid that
// they were told, the monitor's; the shim knows the stand-in's.
func TestJoinsByStandIn(t *testing.T) {
	r := newRuntime(t)
	inPod := func(change func(*specs.Spec)) string {
		return newBundle(t, func(s *specs.Spec) {
			s.Annotations["io.kubernetes.cri-o.ContainerType"], s.Annotations["io.kubernetes.cri-o.SandboxID"] = "container", "pod"
			change(s)
		})
	}
	joins := func(pid int) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.PIDNamespace, Path: pidNamespace(pid)}, {Type: specs.IPCNamespace}}
		}
	}
	create(t, r, "pod", CreateOptions{Bundle: newBundle(t, nil)})
	first := create(t, r, "c1", CreateOptions{Bundle: inPod(func(*specs.Spec) {})})
	create(t, r, "c2", CreateOptions{Bundle: inPod(joins(first))})
	standIn, err := r.standIn(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Load(r.dir("c2"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.Spec.Linux.Namespaces[0].Path, pidNamespace(standIn); got != want {
		t.Errorf("the shim is told of %s, want %s (c1's monitor is %d)", got, want, first)
	}
	// A container alone in its machine cannot share processes with another.
	err = r.Create(t.Context(), "other", CreateOptions{Bundle: newBundle(t, joins(first))})
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), pidNamespace(first)) {
		t.Errorf("a container of another machine: %v", err)
	}
	for _, id := range []string{"c2", "c1", "pod"} {
		if err := r.Delete(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	}
}

// The deletion of a pod's last container waits for the shim's end, also if it is not the
// pod's first one, whose directory is the shim's working directory.
func TestLastDeleteAwaitsTheShim(t *testing.T) {
	r := newRuntime(t)
	monitors := []int{create(t, r, "pod", CreateOptions{Bundle: newBundle(t, nil)})}
	monitors = append(monitors, create(t, r, "c1", CreateOptions{Bundle: newBundle(t, func(s *specs.Spec) {
		s.Annotations["io.kubernetes.cri-o.ContainerType"], s.Annotations["io.kubernetes.cri-o.SandboxID"] = "container", "pod"
	})}))
	shim := files.ShimPID(t, r.dir("pod"))
	for _, id := range []string{"pod", "c1"} {
		if err := r.Delete(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	}
	wantEnded(t, shim)
	for _, pid := range monitors {
		reap(t, pid)
	}
}

// A container that names a sandbox without a type, as in Podman 5.4, runs in the
// sandbox's machine; if the sandbox is not a container, it gets its own machine.
func TestPlaceWithoutAType(t *testing.T) {
	r := newRuntime(t)
	of := func(sandbox string) string {
		return newBundle(t, func(s *specs.Spec) { s.Annotations["io.kubernetes.cri-o.SandboxID"] = sandbox })
	}
	ids := []string{"pod", "c1", "own", "none"}
	for i, dir := range []string{newBundle(t, nil), of("pod"), of("own"), of("absent")} {
		create(t, r, ids[i], CreateOptions{Bundle: dir})
	}
	for id, want := range map[string]string{"pod": "pod", "c1": "pod", "own": "own", "none": "none"} {
		rec, err := r.load(id)
		if err != nil || rec.SandboxID != want {
			t.Errorf("%s is in sandbox %v, %v, want %s", id, rec, err, want)
		}
	}
	address := func(id string) string {
		address, err := bundle.Address(r.dir(id))
		if err != nil {
			t.Error(err)
		}
		return address
	}
	if address("c1") != address("pod") || address("none") == address("pod") || address("own") == address("pod") {
		t.Errorf("the shims' addresses: %s, %s, %s, %s", address("pod"), address("c1"), address("own"), address("none"))
	}
	if err := r.Create(t.Context(), "bad", CreateOptions{Bundle: of("../pod")}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an odd sandbox: %v", err)
	}
	for _, id := range []string{"c1", "pod", "own", "none"} {
		if err := r.Delete(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	}
}

// A create that fails leaves nothing, whichever step fails.
func TestCreateFails(t *testing.T) {
	tests := []struct {
		name, id string
		change   func(*specs.Spec)
		options  CreateOptions
		want     string
	}{
		{"bad id", "a/b", nil, CreateOptions{}, `id "a/b"`},
		{"terminal without a socket", "c1", func(s *specs.Spec) { s.Process.Terminal = true }, CreateOptions{}, "--console-socket"},
		{"socket without a terminal", "c1", nil, CreateOptions{ConsoleSocket: "/x"}, "--console-socket"},
		{"unknown kind", "c1", func(s *specs.Spec) { s.Annotations["io.kubernetes.cri-o.ContainerType"] = "vm" }, CreateOptions{}, `"vm"`},
		{"no sandbox", "c1", func(s *specs.Spec) {
			s.Annotations["io.kubernetes.cri-o.ContainerType"], s.Annotations["io.kubernetes.cri-o.SandboxID"] = "container", "pod"
		}, CreateOptions{}, "sandbox pod"},
		{"no infra container", "c1", func(s *specs.Spec) {
			s.Annotations["io.kubernetes.cri-o.ContainerType"], s.Annotations["io.kubernetes.cri-o.SandboxID"] = "container", "pod"
		}, CreateOptions{}, "drop_infra_ctr = false"},
		{"no listener for the terminal", "c1", func(s *specs.Spec) { s.Process.Terminal = true }, CreateOptions{ConsoleSocket: "/nowhere"}, "connect to console socket"},
		{"no place for the pid", "c1", nil, CreateOptions{PIDFile: "/nowhere/pid"}, "write pid file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRuntime(t)
			tt.options.Bundle = newBundle(t, tt.change)
			err := r.Create(t.Context(), tt.id, tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// The engine gets the terminal's master, and its operations reach the container:
// hanging up sends SIGHUP.
func TestTerminal(t *testing.T) {
	r := newRuntime(t)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	master := make(chan *os.File, 1)
	go func() { master <- takeMaster(l) }()
	pid := create(t, r, "c1", CreateOptions{ConsoleSocket: socket, Bundle: newBundle(t, func(s *specs.Spec) {
		s.Process.Terminal, s.Process.ConsoleSize = true, &specs.Box{Width: 91, Height: 17}
	})})
	f := <-master
	if f == nil {
		t.Fatal("no terminal came")
	}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err != nil || size.Col != 91 || size.Row != 17 {
		t.Errorf("size %+v, %v", size, err)
	}
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, pid); code != 129 {
		t.Errorf("exit code %d, want 129", code)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
}

// takeMaster receives a terminal as conmon does; nil if none comes.
func takeMaster(l *net.UnixListener) *os.File {
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil
	}
	defer conn.Close()
	data, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(data, oob)
	if err != nil {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "master")
}

// A detached exec has its own pid, which ends with it.
func TestExecDetached(t *testing.T) {
	r := newRuntime(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	process := &specs.Process{Args: []string{"sleep", "1"}, Cwd: "/"}
	if err := r.Start(ctx, "c1"); err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	if _, err := r.Exec(ctx, "c1", ExecOptions{Process: process, Detach: true, PIDFile: pidFile}); err != nil {
		t.Fatal(err)
	}
	pids, err := r.Pids(ctx, "c1")
	if err != nil || len(pids) != 2 {
		t.Fatalf("pids %v, %v", pids, err)
	}
	if data, err := os.ReadFile(pidFile); err != nil || string(data) != strconv.Itoa(pids[1]) {
		t.Errorf("pid file holds %q, %v; want %d", data, err, pids[1])
	}
	if err := unix.Kill(pids[1], unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, pids[1]); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if left, err := filepath.Glob(filepath.Join(r.dir("c1"), "io-*")); err != nil || len(left) > 0 {
		t.Errorf("FIFOs left: %v, %v", left, err)
	}
	if err := r.Delete(ctx, "c1", true); err != nil {
		t.Error(err)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if _, err := r.Exec(ctx, "c1", ExecOptions{Process: process}); !errdefs.IsNotFound(err) {
		t.Errorf("exec without a container: %v", err)
	}
}

func TestParseSignal(t *testing.T) {
	for s, want := range map[string]uint32{"": 15, "9": 9, "0": 0, "64": 64, "KILL": 9, "SIGHUP": 1, "usr1": 10} {
		if got, err := ParseSignal(s); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"-1", "65", "SIGNOPE", "9x"} {
		if _, err := ParseSignal(s); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
