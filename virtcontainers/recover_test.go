package virtcontainers_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// deadPod makes what a killed shim leaves: a record that names running
// processes, which stand for the shim, the VM and virtiofsd.
func deadPod(t *testing.T, host *fakeguest.Host) []persist.Process {
	t.Helper()
	platform := host.Platform()
	store, err := persist.Create(platform.StateDir(), platform.Owner, sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	var processes []persist.Process
	for range 3 {
		cmd := exec.Command("sleep", "3600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p, err := persist.Identify(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, p)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = cmd.Wait()
		}()
		t.Cleanup(func() {
			_ = p.Kill(time.Second)
			<-gone
		})
	}
	if err := store.Update(func(r *persist.Record) {
		r.Shim, r.VM, r.FSDaemon = processes[0], processes[1], processes[2]
	}); err != nil {
		t.Fatal(err)
	}
	return processes
}

func TestRecover(t *testing.T) {
	host := newHost(t)
	processes := deadPod(t, host)
	const timeout = 10 * time.Second
	// Recover for a service container does not end the pod while its shim
	// lives.
	rec, err := virtcontainers.Recover(host.Platform(), sandboxID, "c1", timeout)
	if err != nil || rec.VM != processes[1] || !processes[0].Alive() || !processes[1].Alive() {
		t.Errorf("record %+v: %v", rec, err)
	}
	for range 2 {
		if rec, err = virtcontainers.Recover(host.Platform(), sandboxID, sandboxID, timeout); err != nil {
			t.Fatal(err)
		}
		checkNothingLeft(t, host)
	}
	if rec.VM.PID != 0 || rec.SandboxID != sandboxID {
		t.Errorf("record of a pod that is gone: %+v", rec)
	}
	for i, p := range processes {
		if p.Alive() {
			t.Errorf("process %d of the pod is alive", i)
		}
	}
}

// A pod whose shim is dead is cleaned up by the first Recover, for any
// container.
func TestRecoverByServiceContainer(t *testing.T) {
	host := newHost(t)
	processes := deadPod(t, host)
	if err := processes[0].Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shim's end", func() bool { return !processes[0].Alive() })
	if _, err := virtcontainers.Recover(host.Platform(), sandboxID, "c1", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, host)
}

// What cannot be removed keeps the record, and a later start tries again.
func TestRecoverAgain(t *testing.T) {
	host := newHost(t)
	deadPod(t, host)
	platform := host.Platform()
	full := filepath.Join(t.TempDir(), "cgroup")
	if err := os.MkdirAll(filepath.Join(full, "in it"), 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := persist.Load(platform.StateDir(), platform.Owner.Name(sandboxID))
	if err != nil {
		t.Fatal(err)
	}
	again, err := persist.Create(platform.StateDir(), platform.Owner, sandboxID)
	if err == nil {
		err = again.Update(func(r *persist.Record) { *r = *store; r.Cgroups = []string{full} })
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := virtcontainers.Recover(platform, sandboxID, sandboxID, time.Second); err == nil {
		t.Error("the cgroup counts as removed")
	}
	record := filepath.Join(platform.StateDir(), platform.Owner.Name(sandboxID))
	sweep := func(want bool) {
		t.Helper()
		err := virtcontainers.SweepAbandoned(platform, "", time.Second)
		if _, statErr := os.Stat(record); err != nil || (statErr == nil) != want {
			t.Errorf("swept with %v: the record is there: %v", err, statErr)
		}
	}
	sweep(true) // the delete may still be at work
	old := time.Now().Add(-time.Minute)
	if err := errors.Join(os.Chtimes(filepath.Join(record, "removing"), old, old), os.Remove(filepath.Join(full, "in it"))); err != nil {
		t.Fatal(err)
	}
	sweep(false)
	checkNothingLeft(t, host)
	if _, err := os.Stat(full); err == nil {
		t.Error("the cgroup is left")
	}
}

// deadPodIn makes a dead pod with cgroups, in which another process, such as a
// logger, still is.
func deadPodIn(t *testing.T, host *fakeguest.Host, parent string) (cgroups []string, logger persist.Process) {
	t.Helper()
	c, err := hostcgroup.New(hostcgroup.Options{Path: parent + "/c1", Name: strings.TrimPrefix(parent, "/")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Remove(context.Background()) }) // after a failure
	logger = deadPod(t, host)[2]
	platform := host.Platform()
	rec, err := persist.Load(platform.StateDir(), platform.Owner.Name(sandboxID))
	if err != nil {
		t.Fatal(err)
	}
	store, err := persist.Create(platform.StateDir(), platform.Owner, sandboxID)
	if err == nil {
		err = store.Update(func(r *persist.Record) {
			*r = *rec
			r.FSDaemon, r.Cgroups = persist.Process{}, c.Dirs()
		})
	}
	if err := errors.Join(err, c.Make(), c.Add(logger.PID)); err != nil {
		t.Fatal(err)
	}
	return c.Dirs(), logger
}

// A logger that a dead shim has left in the pod's cgroup leaves it, and lives on.
func TestRecoverWithALogger(t *testing.T) {
	host, parent := newCgroupHost(t)
	cgroups, logger := deadPodIn(t, host, parent)
	if _, err := virtcontainers.Recover(host.Platform(), sandboxID, sandboxID, 10*time.Second); err != nil {
		t.Error(err)
	}
	if !logger.Alive() {
		t.Error("the logger was killed")
	}
	for _, dir := range cgroups {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	checkNothingLeft(t, host)
}

// A cgroup that stays busy takes no longer than the processes may.
func TestRecoverIsBounded(t *testing.T) {
	host, parent := newCgroupHost(t)
	cgroups, _ := deadPodIn(t, host, parent)
	busy := filepath.Join(cgroups[0], "busy")
	if err := os.Mkdir(busy, 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := virtcontainers.Recover(host.Platform(), sandboxID, sandboxID, time.Millisecond); err == nil {
		t.Error("the cgroup counts as removed")
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if err := os.Remove(busy); err != nil {
		t.Error(err)
	}
	if _, err := virtcontainers.Recover(host.Platform(), sandboxID, sandboxID, 10*time.Second); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, host)
}

// All is removed although its record cannot be marked before.
func TestRecoverUnmarked(t *testing.T) {
	host := newHost(t)
	processes := deadPod(t, host)
	platform := host.Platform()
	inTheWay := filepath.Join(platform.StateDir(), platform.Owner.Name(sandboxID), "removing")
	if err := os.Mkdir(inTheWay, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := virtcontainers.Recover(platform, sandboxID, sandboxID, 10*time.Second); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, host)
	for i, p := range processes {
		if p.Alive() {
			t.Errorf("process %d of the pod is alive", i)
		}
	}
}

// A damaged record is an error, and the rest is cleaned up.
func TestRecoverWithoutRecord(t *testing.T) {
	host := newHost(t)
	deadPod(t, host)
	state := filepath.Join(host.Platform().StateDir(), sandboxID, "state.json")
	if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := virtcontainers.Recover(host.Platform(), sandboxID, sandboxID, time.Second); err == nil || !strings.Contains(err.Error(), "state of pod") {
		t.Errorf("got %v", err)
	}
	checkNothingLeft(t, host)
}

// A record that could not be read now, as when the disk fails or nothing can be opened,
// stays: what it names would stay for good without it, and its shim may live.
func TestRecoverWithAnUnreadableRecord(t *testing.T) {
	host := newHost(t)
	platform := host.Platform()
	dir := filepath.Join(platform.StateDir(), platform.Owner.Name(sandboxID))
	if err := os.MkdirAll(filepath.Join(dir, "state.json"), 0o700); err != nil { // EISDIR
		t.Fatal(err)
	}
	for containerID, names := range map[string][]string{"c1": {"state.json"}, sandboxID: {"removing", "state.json"}} {
		_ = os.Remove(filepath.Join(dir, "removing"))
		if _, err := virtcontainers.Recover(platform, sandboxID, containerID, time.Second); !errors.Is(err, unix.EISDIR) {
			t.Errorf("for %s: %v", containerID, err)
		}
		var got []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, names) || err != nil {
			t.Errorf("for %s: there are %q, %v, want %q", containerID, got, err, names)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

func TestUnmountBundle(t *testing.T) {
	host := newHost(t)
	b := newBundle(t, host, "c1")
	for range 2 { // two mounts, one on the other
		if err := unix.Mount(t.TempDir(), b.RootfsPath(), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := virtcontainers.UnmountBundle(b.Dir); err != nil {
			t.Fatal(err)
		}
		checkNothingLeft(t, host)
	}
}
