package manager

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// killedShim makes what a killed shim leaves of the sandbox "pod": its record,
// its machine and its virtiofsd, a mounted rootfs, a socket.
type killedShim struct {
	params      *Params
	vm, fs      persist.Process
	standIn     persist.Process
	socket      string
	rootfsMount string
}

func newKilledShim(t *testing.T, host *fakeguest.Host, shim persist.Process) *killedShim {
	t.Helper()
	params := newParams(t, host.RunDir, "pod", nil)
	return killedShimOf(t, host, params, params.owner(), shim)
}

// killedShimOf does the same for a container whose record belongs to that owner.
func killedShimOf(t *testing.T, host *fakeguest.Host, p *Params, owner persist.Owner, shim persist.Process) *killedShim {
	t.Helper()
	k := &killedShim{
		params: p,
		vm:     sleeper(t, "qemu"), fs: sleeper(t, "virtiofsd"),
		standIn: sleeper(t, "sh"),
	}
	store, err := persist.Create(host.Platform().StateDir(), owner, "pod")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Update(func(r *persist.Record) {
		r.Shim, r.VM, r.FSDaemon, r.StandIns = shim, k.vm, k.fs, map[string]persist.Process{"pod": k.standIn}
	}); err != nil {
		t.Fatal(err)
	}
	k.rootfsMount = filepath.Join(k.params.Bundle, "rootfs")
	if err := unix.Mount(t.TempDir(), k.rootfsMount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	address := socketAddress(k.params)
	l, err := listen(address)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	k.socket = socketPath(address)
	write(t, k.params.Bundle, bundle.AddressFile, address)
	write(t, k.params.Bundle, bundle.PIDFile, strconv.Itoa(shim.PID))
	return k
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := writeFile(dir, name, content); err != nil {
		t.Fatal(err)
	}
}

// remove deletes what a killed daemon has left, and returns the answer.
func remove(t *testing.T, p *Params, host *fakeguest.Host) *task.DeleteResponse {
	t.Helper()
	resp := answerTo(t, p, host)
	if resp.ExitStatus != virtcontainers.ExitKilled || time.Since(resp.ExitedAt.AsTime()).Abs() > time.Minute {
		t.Errorf("answer %v", resp)
	}
	return resp
}

// answerTo deletes, and returns the answer.
func answerTo(t *testing.T, p *Params, host *fakeguest.Host) *task.DeleteResponse {
	t.Helper()
	var out bytes.Buffer
	if err := Delete(p, host.Platform(), &out); err != nil {
		t.Fatal(err)
	}
	var resp task.DeleteResponse
	if err := proto.Unmarshal(out.Bytes(), &resp); err != nil {
		t.Fatal(err)
	}
	return &resp
}

// removePartly calls Delete when something cannot be removed, checks that the
// answer is whole, and returns what it printed.
func removePartly(t *testing.T, p *Params, host *fakeguest.Host) string {
	t.Helper()
	said, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stderr := os.Stderr
	os.Stderr = said
	defer func() { os.Stderr = stderr }()
	remove(t, p, host)
	data, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestDelete(t *testing.T) {
	for name, alive := range map[string]bool{"shim killed": false, "shim hangs": true} {
		t.Run(name, func(t *testing.T) {
			host := newHost(t)
			shim := sleeper(t, "/x/containerd-shim-kata-v2", "-namespace", "test", "-id", "pod")
			if !alive {
				if err := shim.Kill(10 * time.Second); err != nil {
					t.Fatal(err)
				}
				gone(t, shim)
			}
			k := newKilledShim(t, host, shim)
			if resp := remove(t, k.params, host); resp.Pid != uint32(k.standIn.PID) {
				t.Errorf("pid %d, want the stand-in's, %d", resp.Pid, k.standIn.PID)
			}
			for _, p := range []persist.Process{shim, k.vm, k.fs, k.standIn} {
				gone(t, p)
			}
			if exists(k.socket) {
				t.Error("the socket is left")
			}
			if left, err := host.Leftovers(); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if resp := remove(t, k.params, host); resp.Pid != 0 {
				t.Errorf("pid %d of what is gone", resp.Pid)
			}
		})
	}
}

// deleteTells deletes, and compares the exit in the answer.
func deleteTells(t *testing.T, p *Params, host *fakeguest.Host, want bundle.Exit) {
	t.Helper()
	if resp := answerTo(t, p, host); resp.ExitStatus != want.Status || !resp.ExitedAt.AsTime().Equal(want.At) {
		t.Errorf("answer %v, want %v", resp, want)
	}
}

// A container that had ended before its shim was killed keeps its exit.
func TestDeleteTellsTheExit(t *testing.T) {
	host := newHost(t)
	p := newParams(t, host.RunDir, "pod", nil)
	want := bundle.Exit{Status: 3, At: time.Unix(1000, 7).UTC()}
	if err := bundle.SaveExit(p.Bundle, want); err != nil {
		t.Fatal(err)
	}
	deleteTells(t, p, host, want)
}

// A daemon that is ending may still have events to forward: Delete waits for it.
func TestDeleteWhileTheDaemonEnds(t *testing.T) {
	host := newHost(t)
	shim := daemonOf(t, "test")
	p := newParams(t, host.RunDir, "pod", nil)
	write(t, p.Bundle, bundle.PIDFile, strconv.Itoa(shim.PID))
	write(t, p.Bundle, bundle.EndingFile, "")
	deleted := make(chan error, 1)
	go func() { deleted <- Delete(p, host.Platform(), new(bytes.Buffer)) }()
	select {
	case err := <-deleted:
		t.Fatalf("Delete did not wait: %v", err)
	case <-time.After(endGrace / 10):
	}
	if !shim.Alive() {
		t.Fatal("the daemon was killed")
	}
	if err := shim.Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
}

// A daemon that only waits for its loggers takes its pid out of the bundle: Delete
// does not wait for it, and does not kill it.
func TestDeleteWhileLoggersEnd(t *testing.T) {
	host := newHost(t)
	shim := daemonOf(t, "test")
	p := newParams(t, host.RunDir, "pod", nil)
	write(t, p.Bundle, bundle.PIDFile, strconv.Itoa(shim.PID))
	write(t, p.Bundle, bundle.EndingFile, "")
	deleted := make(chan error, 1)
	began := time.Now()
	go func() { deleted <- Delete(p, host.Platform(), new(bytes.Buffer)) }()
	time.Sleep(endGrace / 10)
	if err := os.Remove(filepath.Join(p.Bundle, bundle.PIDFile)); err != nil {
		t.Error(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > endGrace*2/3 {
		t.Errorf("Delete took %v", took)
	}
	if !shim.Alive() {
		t.Error("the daemon was killed")
	}
}

// Delete may be called before anything was made, and without a bundle.
func TestDeleteNothing(t *testing.T) {
	host := newHost(t)
	p := newParams(t, host.RunDir, "pod", nil)
	remove(t, p, host)
	if err := os.RemoveAll(p.Bundle); err != nil {
		t.Fatal(err)
	}
	remove(t, p, host)
	if err := Delete(p, host.Platform(), brokenWriter{}); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
}

// The error of a record that cannot be read is printed, and the rest is removed.
func TestDeleteFails(t *testing.T) {
	host := newHost(t)
	p := newParams(t, host.RunDir, "pod", nil)
	dir := platformDir(host, p.owner())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "state.json", `{"version":99}`)
	rootfs := filepath.Join(p.Bundle, "rootfs")
	if err := unix.Mount(t.TempDir(), rootfs, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if said := removePartly(t, p, host); !strings.Contains(said, "version 99") {
		t.Errorf("printed %q", said)
	}
	if err := unix.Unmount(rootfs, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("the container's rootfs is mounted: %v", err)
	}
}

// What cannot be removed is printed, and all else is removed. A later start
// removes the rest.
func TestDeletePartly(t *testing.T) {
	host := newHost(t)
	shim := sleeper(t, "shim")
	if err := shim.Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	gone(t, shim)
	k := newKilledShim(t, host, shim)
	cgroup := filepath.Join(t.TempDir(), "cgroup")
	inside := filepath.Join(cgroup, "inside")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := persist.Create(host.Platform().StateDir(), k.params.owner(), "pod")
	if err == nil {
		err = store.Update(func(r *persist.Record) { r.Shim, r.VM, r.Cgroups = shim, k.vm, []string{cgroup} })
	}
	if err != nil {
		t.Fatal(err)
	}
	if said := removePartly(t, k.params, host); !strings.Contains(said, cgroup) {
		t.Errorf("printed %q", said)
	}
	gone(t, k.vm)
	if exists(k.socket) {
		t.Error("the socket is left")
	}
	record := platformDir(host, k.params.owner())
	if left, err := host.Leftovers(); err != nil || !slices.Equal(left, []string{record}) {
		t.Errorf("left: %v, %v, want the record", left, err)
	}
	old := time.Now().Add(-time.Minute)
	if err := errors.Join(os.Remove(inside), os.Chtimes(filepath.Join(record, "removing"), old, old)); err != nil {
		t.Fatal(err)
	}
	Sweep(t.Context(), newParams(t, host.RunDir, "next", nil), host.Platform())
	if exists(cgroup) || exists(record) {
		t.Error("the cgroup or the record is left")
	}
}

// So does the start of a container with the same id, before its record replaces the
// old one, which alone names the rest.
func TestStartAfterAFailedDelete(t *testing.T) {
	host := newHost(t)
	shim := sleeper(t, "/x/containerd-shim-kata-v2", "-namespace", "test", "-id", "pod")
	k := newKilledShim(t, host, shim)
	if err := shim.Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	gone(t, shim)
	record := filepath.Join(host.Platform().StateDir(), k.params.owner().Name("pod"))
	if err := persist.BeginRemoval(filepath.Dir(record), filepath.Base(record)); err != nil {
		t.Fatal(err)
	}
	Sweep(t.Context(), newParams(t, host.RunDir, "next", nil), host.Platform())
	if !k.vm.Alive() || !exists(record) {
		t.Error("another start did not leave it to its delete")
	}
	Sweep(t.Context(), newParams(t, host.RunDir, "pod", nil), host.Platform())
	gone(t, k.vm)
	if exists(record) {
		t.Error("the record is left")
	}
	remove(t, k.params, host)
}

// The delete of a service container leaves the pod alone while its shim runs, and
// the pod's socket in any case.
func TestDeleteServiceContainer(t *testing.T) {
	host := newHost(t)
	shim := sleeper(t, "/x/containerd-shim-kata-v2", "-id", "pod")
	k := newKilledShim(t, host, shim)
	p := newParams(t, host.RunDir, "c1", serviceOf("pod"))
	write(t, p.Bundle, bundle.AddressFile, bundle.AddressScheme+k.socket) // as start does
	rootfs := filepath.Join(p.Bundle, "rootfs")
	if err := unix.Mount(t.TempDir(), rootfs, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	remove(t, p, host)
	if err := os.Remove(filepath.Join(p.Bundle, "config.json")); err != nil {
		t.Fatal(err)
	}
	remove(t, p, host) // now nothing says to which pod it belonged
	for _, process := range []persist.Process{shim, k.vm, k.fs, k.standIn} {
		if !process.Alive() {
			t.Errorf("process %d of the pod was killed", process.PID)
		}
	}
	if !exists(k.socket) {
		t.Error("the pod's socket was removed")
	}
	if err := unix.Unmount(rootfs, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("the container's rootfs is mounted: %v", err)
	}
	// The shim dies: the next delete removes the pod.
	if err := shim.Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	gone(t, shim)
	remove(t, newParams(t, host.RunDir, "c2", serviceOf("pod")), host)
	gone(t, k.vm)
	remove(t, k.params, host)
}

// Only the daemon of that container is killed, whatever pid the file has.
func TestOthersAreNotKilled(t *testing.T) {
	host := newHost(t)
	p := newParams(t, host.RunDir, "pod", nil)
	for name, args := range map[string][]string{
		"another container's daemon": {"/x/containerd-shim-kata-v2", "-namespace", "test", "-id", "pod2"},
		"another namespace's daemon": {"/x/containerd-shim-kata-v2", "-namespace", "n", "-id", "pod"},
		"another program":            {"/bin/other", "-id", "pod"},
		"no id":                      {"/x/containerd-shim-kata-v2", "pod"},
		"id as a value":              {"/x/containerd-shim-kata-v2", "-publish-binary", "-id"},
	} {
		process := sleeper(t, args...)
		write(t, p.Bundle, bundle.PIDFile, strconv.Itoa(process.PID))
		remove(t, p, host)
		if !process.Alive() {
			t.Errorf("%s was killed", name)
		}
	}
	for _, content := range []string{"", "x", "-1", "0", "1", "99999999", strconv.Itoa(os.Getpid())} {
		write(t, p.Bundle, bundle.PIDFile, content)
		remove(t, p, host)
	}
	if isDaemon(2, p) { // a kernel thread, or no process
		t.Error("a process without a command line is a daemon")
	}
	if err := os.Remove(filepath.Join(p.Bundle, bundle.PIDFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(p.Bundle, bundle.PIDFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if said := removePartly(t, p, host); !strings.Contains(said, bundle.PIDFile) {
		t.Errorf("a pid file that cannot be read is no error: printed %q", said)
	}
}

// What cannot be removed does not keep the engine from the exit that was saved,
// and the hooks that are due run.
func TestDeletePartlyTellsTheExit(t *testing.T) {
	host := newHost(t)
	p := newParams(t, host.RunDir, "pod", nil)
	runsAtItsEnd(t, p, "echo ran >> ran")
	want := bundle.Exit{Status: 0, At: time.Unix(1000, 7).UTC()}
	if err := errors.Join(bundle.SaveExit(p.Bundle, want), os.Mkdir(filepath.Join(p.Bundle, bundle.PIDFile), 0o700)); err != nil {
		t.Fatal(err)
	}
	deleteTells(t, p, host, want)
	if !exists(filepath.Join(p.Bundle, "ran")) {
		t.Error("the hook did not run")
	}
}

// A user of kata-runtime sees what could not be removed, and calls again.
func TestDeletePartlyOnTheCommandLine(t *testing.T) {
	host := newHost(t)
	p := newParams(t, host.RunDir, "pod", nil)
	p.Namespace = engine.CommandLine
	if err := os.Mkdir(filepath.Join(p.Bundle, bundle.PIDFile), 0o700); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Delete(p, host.Platform(), &out); err == nil || out.Len() > 0 {
		t.Errorf("answered %q, %v", out.Bytes(), err)
	}
}

// iSulad never calls delete: the next start cleans up.
func TestSweep(t *testing.T) {
	host := newHost(t)
	shim := sleeper(t, "shim")
	if err := shim.Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	gone(t, shim)
	p, next := newParams(t, host.RunDir, "pod", nil), newParams(t, host.RunDir, "next", nil)
	p.Namespace = "isula"
	k := killedShimOf(t, host, p, p.owner(), shim)
	Sweep(t.Context(), next, host.Platform())
	if !k.vm.Alive() || !exists(k.socket) {
		t.Error("what containerd deletes was swept")
	}
	other := newKilledShim(t, host, shim)
	next.Namespace = "isula"
	Sweep(t.Context(), next, host.Platform())
	gone(t, k.vm)
	if exists(k.socket) {
		t.Error("the socket is left")
	}
	if !other.vm.Alive() || !exists(other.socket) {
		t.Error("another engine's pod of that id was swept")
	}
	remove(t, k.params, host)
	remove(t, other.params, host)
}

// runsAtItsEnd gives a container a poststop hook, which is due.
func runsAtItsEnd(t *testing.T, p *Params, script string) {
	t.Helper()
	b, err := bundle.Load(p.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	b.Spec.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", script}}}}
	data, err := json.Marshal(b.Spec)
	if err != nil {
		t.Fatal(err)
	}
	write(t, b.Dir, bundle.SpecFile, string(data))
	if err := bundle.OwePoststop(b.Dir); err != nil {
		t.Fatal(err)
	}
}

// A killed shim has not run the hooks that were due: delete runs them, once.
func TestDeleteRunsPoststopHooks(t *testing.T) {
	host := newHost(t)
	k := newKilledShim(t, host, sleeper(t, "/x/containerd-shim-kata-v2", "-namespace", "test", "-id", "pod"))
	runsAtItsEnd(t, k.params, "echo ran >> ran")
	remove(t, k.params, host)
	remove(t, k.params, host)
	if got, err := os.ReadFile(filepath.Join(k.params.Bundle, "ran")); err != nil || string(got) != "ran\n" {
		t.Errorf("hooks: %q, %v", got, err)
	}
}
