package guesttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
)

func TestGuestExec(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "exec")
	p := process("id -u; id -g; id -G; pwd; echo $FOO; kill -9 $$")
	p.User, p.Cwd = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{5}}, "/tmp"
	p.Env = append(p.Env, "FOO=bar")
	if r := m.exec(t, "exec", "user", p); r.out != "1000\n1000\n1000 5\n/tmp\nbar\n" && r.out != "1000\n1000\n5\n/tmp\nbar\n" || r.exit.GetStatus() != 137 {
		t.Errorf("%+v", r)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := m.exec(t, "exec", fmt.Sprint("e", i), process(fmt.Sprintf("echo %d; exit %d", i, i)))
			if r.out != fmt.Sprintln(i) || r.exit.GetStatus() != uint32(i) {
				t.Errorf("%d: %+v", i, r)
			}
		})
	}
	wg.Wait()
}

func TestGuestInitTakesItsExecsAlong(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "along")
	text, err := json.Marshal(process("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Exec(t.Context(), &taskapi.ExecProcessRequest{ID: "along", ExecID: "e", Spec: &anypb.Any{Value: text}}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: "along", ExecID: "e"}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Kill(t.Context(), &taskapi.KillRequest{ID: "along", Signal: 15}); err != nil {
		t.Fatal(err)
	}
	if status := m.exit(t, "along", "").GetStatus(); status != 7 {
		t.Errorf("init: %d", status)
	}
	if words := m.told("along"); strings.Join(words, ",") != "exit e,exit " {
		t.Errorf("events %q", words)
	}
	_, err = m.task.Kill(t.Context(), &taskapi.KillRequest{ID: "along", Signal: 15})
	if !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("kill again: %v", err)
	}
}

func TestGuestExitBeforeGrandchild(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "grand")
	r := m.exec(t, "grand", "quick", process("echo one"))
	if r.out != "one\n" {
		t.Errorf("%+v", r)
	}
	text, err := json.Marshal(process("echo one; (while [ ! -e /tmp/go ]; do sleep 0.05; done; echo two) & exit 5"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Exec(t.Context(), &taskapi.ExecProcessRequest{ID: "grand", ExecID: "e", Stdout: "y", Spec: &anypb.Any{Value: text}}); err != nil {
		t.Fatal(err)
	}
	out := m.output(t, "grand", "e", api.Stream_STREAM_STDOUT)
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: "grand", ExecID: "e"}); err != nil {
		t.Fatal(err)
	}
	if x := m.exit(t, "grand", "e"); x.GetStatus() != 5 || x.GetStdoutBytes() != 4 {
		t.Errorf("%v", x)
	}
	m.exec(t, "grand", "go", process("touch /tmp/go"))
	if got := <-out; got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

func TestGuestStdin(t *testing.T) {
	m := guestOnly(t)
	spec := shell("cat; echo end")
	_, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: "stdin", Stdin: "y", Stdout: "y", Options: packed(t, spec, false)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: "stdin"}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Errorf("started without streams: %v", err)
	}
	in, out := m.bind(t, "stdin", "", api.Stream_STREAM_STDIN), m.output(t, "stdin", "", api.Stream_STREAM_STDOUT)
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: "stdin"}); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = in.Write(data)
		_ = in.CloseWrite()
	}()
	if got := <-out; got != string(data)+"end\n" {
		t.Errorf("%d bytes, want %d", len(got), len(data)+4)
	}
	m.exit(t, "stdin", "")
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: "stdin"}); err != nil {
		t.Error(err)
	}
}

func TestGuestTerminal(t *testing.T) {
	m := guestOnly(t)
	spec := shell("stty size; read x; stty size; tty; echo got $x; seq 1 3000; exit 3")
	spec.Process.Terminal, spec.Process.ConsoleSize = true, &specs.Box{Height: 24, Width: 80}
	_, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: "tty", Terminal: true, Stdin: "y", Stdout: "y", Options: packed(t, spec, false)})
	if err != nil {
		t.Fatal(err)
	}
	in, out := m.bind(t, "tty", "", api.Stream_STREAM_STDIN), m.bind(t, "tty", "", api.Stream_STREAM_STDOUT)
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: "tty"}); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("24 80\r\n"))
	if _, err := io.ReadFull(out, first); err != nil || string(first) != "24 80\r\n" {
		t.Errorf("%q, %v", first, err)
	}
	if _, err := m.task.ResizePty(t.Context(), &taskapi.ResizePtyRequest{ID: "tty", Width: 132, Height: 43}); err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(in, "xyz\n")
	rest, err := io.ReadAll(out)
	x := m.exit(t, "tty", "")
	if err != nil || x.GetStatus() != 3 || int(x.GetStdoutBytes()) != len(first)+len(rest) ||
		!strings.HasPrefix(string(rest), "xyz\r\n43 132\r\n/dev/pts/0\r\ngot xyz\r\n1\r\n") || !bytes.HasSuffix(rest, []byte("\n3000\r\n")) {
		t.Errorf("%v, %v, %d bytes: %.100q", x, err, len(rest), rest)
	}
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: "tty"}); err != nil {
		t.Error(err)
	}
}

func TestGuestPauseUpdateStats(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "frozen")
	ctx := t.Context()
	if _, err := m.task.Pause(ctx, &taskapi.PauseRequest{ID: "frozen"}); err != nil {
		t.Fatal(err)
	}
	if got := fileIn(t, "/sys/fs/cgroup/katabox/frozen/cgroup.events"); !strings.Contains(got, "frozen 1") {
		t.Error(got)
	}
	if _, err := m.task.Resume(ctx, &taskapi.ResumeRequest{ID: "frozen"}); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(int64(99 << 20))}, Pids: &specs.LinuxPids{Limit: ptr(int64(55))}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Update(ctx, &taskapi.UpdateTaskRequest{ID: "frozen", Resources: &anypb.Any{Value: text}}); err != nil {
		t.Fatal(err)
	}
	if r := m.exec(t, "frozen", "e", process("cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max")); r.out != "103809024\n55\n" {
		t.Errorf("%+v", r)
	}
	stats, err := m.task.Stats(ctx, &taskapi.StatsRequest{ID: "frozen"})
	if err != nil || stats.GetStats().GetTypeUrl() != "io.containerd.cgroups.v2.Metrics" {
		t.Errorf("%v, %v", stats, err)
	}
}

func TestGuestSharedPIDNamespace(t *testing.T) {
	m := guestOnly(t)
	// The pod's first container is the oldest one that lives.
	m.pause(t, "sandbox")
	spec := shell("grep -c \"trap 'exit 7\" /proc/1/cmdline; sleep 777 & exit 3")
	_, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: "member", Stdout: "y", Options: packed(t, spec, true)})
	if err != nil {
		t.Fatal(err)
	}
	out := m.output(t, "member", "", api.Stream_STREAM_STDOUT)
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: "member"}); err != nil {
		t.Fatal(err)
	}
	if x := m.exit(t, "member", ""); x.GetStatus() != 3 {
		t.Errorf("%v", x)
	}
	if got := <-out; got != "1\n" {
		t.Errorf("the member sees %q of the pod's first container", got)
	}
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: "member"}); err != nil {
		t.Error(err)
	}
	if r := m.exec(t, "sandbox", "ps", process("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 77[7]'")); r.out != "0\n" {
		t.Errorf("the member's background process lives on: %q", r.out)
	}
}

func TestGuestLeavesNothing(t *testing.T) {
	m := guestOnly(t)
	before := leftovers(t)
	for i := range 5 {
		m.run(t, fmt.Sprint("leave", i), shell("sleep 1000 & exit 0"))
		spec := shell("")
		spec.Process.Args = []string{"nosuch"}
		if _, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: "never", Stdout: "y", Options: packed(t, spec, false)}); err == nil {
			t.Error("made a container of nothing")
		}
	}
	awaitLeftovers(t, before)
}

// awaitLeftovers waits until the guest has no more than before: the kernel frees some of
// it later.
func awaitLeftovers(t *testing.T, before string) {
	t.Helper()
	var after string
	for deadline := time.Now().Add(callTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if after = leftovers(t); after == before {
			return
		}
	}
	t.Errorf("before:\n%s\nafter:\n%s", before, after)
}

// leftovers lists what a container could leave behind in the guest. libcontainer leaves
// the exec.fifo of a failed start to the garbage collector.
func leftovers(t *testing.T) string {
	t.Helper()
	runtime.GC()
	var list []string
	list = append(list, openFiles()...)
	for _, pattern := range []string{"/sys/fs/cgroup/katabox/*/cgroup.procs", api.GuestRunDir + "/*/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Error(err)
		}
		list = append(list, fmt.Sprint(pattern, " ", len(found)))
	}
	zombies := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		if data, err := os.ReadFile(stat); err == nil && bytes.Contains(data, []byte(") Z ")) {
			zombies++
		}
	}
	mounts := strings.Count(fileIn(t, "/proc/self/mounts"), "\n")
	return strings.Join(append(list, fmt.Sprint("zombies ", zombies), fmt.Sprint("mounts ", mounts)), "\n")
}

// openFiles lists what this process's descriptors are, with the numbers of sockets
// and the like left out.
func openFiles() []string {
	var list []string
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil { // that of the directory is closed
			kind, _, _ := strings.Cut(file, ":[")
			list = append(list, "open "+kind)
		}
	}
	slices.Sort(list)
	return list
}

// An update beside a pause or a resume undoes neither.
func TestGuestPauseBesideUpdate(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "beside")
	ctx := t.Context()
	text, err := json.Marshal(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr(int64(55))}})
	if err != nil {
		t.Fatal(err)
	}
	update := func() error {
		_, err := m.task.Update(ctx, &taskapi.UpdateTaskRequest{ID: "beside", Resources: &anypb.Any{Value: text}})
		return err
	}
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { _, err := m.task.Pause(ctx, &taskapi.PauseRequest{ID: "beside"}); return err }, "1\n"},
		{func() error { _, err := m.task.Resume(ctx, &taskapi.ResumeRequest{ID: "beside"}); return err }, "0\n"},
	}
	for range 20 {
		for _, step := range steps {
			updated := make(chan error, 1)
			go func() { updated <- update() }()
			if err := errors.Join(step.do(), <-updated); err != nil {
				t.Fatal(err)
			}
			if got := fileIn(t, "/sys/fs/cgroup/katabox/beside/cgroup.freeze"); got != step.want {
				t.Fatalf("cgroup.freeze is %q, want %q", got, step.want)
			}
		}
	}
}

// What a container can reach through /proc/PID/exe it cannot change.
func TestGuestProgramCannotBeChanged(t *testing.T) {
	guestOnly(t)
	if err := os.Chmod("/proc/1/exe", 0o700); !errors.Is(err, unix.EROFS) {
		t.Errorf("chmod: %v, want %v", err, unix.EROFS)
	}
}
