package virtcontainers_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// Only a pod whose shim is dead is swept, and once.
func TestSweep(t *testing.T) {
	host := newHost(t)
	processes := deadPod(t, host)
	swept, err := virtcontainers.Sweep(host.Platform(), time.Second)
	if err != nil || len(swept) != 0 || !processes[1].Alive() {
		t.Fatalf("while its shim lives: swept %v, error %v", swept, err)
	}
	if err := processes[0].Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{sandboxID}, nil} {
		swept, err := virtcontainers.Sweep(host.Platform(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, swept); diff != "" {
			t.Error(diff)
		}
		checkNothingLeft(t, host)
	}
	for i, p := range processes {
		if p.Alive() {
			t.Errorf("process %d of the pod is alive", i)
		}
	}
}

// A sandbox that starts with the id of one that is about to be swept is left alone.
func TestSweepAbandonedSparesANewSandbox(t *testing.T) {
	host := newHost(t)
	platform := host.Platform()
	old := deadPod(t, host)
	if err := old[0].Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	name := platform.Owner.Name(sandboxID)
	if err := persist.BeginRemoval(platform.StateDir(), name); err != nil {
		t.Fatal(err)
	}
	longAgo := time.Now().Add(-time.Minute)
	if err := os.Chtimes(filepath.Join(platform.StateDir(), name, "removing"), longAgo, longAgo); err != nil {
		t.Fatal(err)
	}
	unlock, err := persist.Lock(platform.StateDir(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	go func() { swept <- virtcontainers.SweepAbandoned(platform, "", time.Second) }()
	time.Sleep(300 * time.Millisecond) // it has found the sandbox, and waits
	// The one that has the lock recovers it, and starts the next one.
	if _, err := virtcontainers.Recover(platform, sandboxID, sandboxID, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	next := deadPod(t, host)
	if err := errors.Join(unlock(), <-swept); err != nil {
		t.Fatal(err)
	}
	checkAlive(t, host, next)
}

// So is one that starts while the old one is swept.
func TestSweepSparesANewRecord(t *testing.T) {
	host := newHost(t)
	platform := host.Platform()
	old := deadPod(t, host)
	if err := old[0].Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	store, err := persist.Create(platform.StateDir(), platform.Owner, sandboxID)
	if err == nil {
		err = store.Update(func(r *persist.Record) { r.Shim, r.VM, r.Network = old[0], old[1], []byte("{}") })
	}
	if err != nil {
		t.Fatal(err)
	}
	var next []persist.Process
	platform.CleanNetwork = func(string, []byte) error {
		next = deadPod(t, host)
		return nil
	}
	swept, err := virtcontainers.Sweep(platform, 10*time.Second)
	if err != nil || len(swept) != 0 { // the caller removes the sockets of these ids
		t.Fatalf("swept %v, error %v", swept, err)
	}
	if old[1].Alive() {
		t.Error("the old sandbox's machine is alive")
	}
	checkAlive(t, host, next)
}

// checkAlive checks that a sandbox of deadPod runs, and has its record, and removes it.
func checkAlive(t *testing.T, host *fakeguest.Host, processes []persist.Process) {
	t.Helper()
	for i, p := range processes {
		if !p.Alive() {
			t.Errorf("process %d of the new sandbox was ended", i)
		}
	}
	platform := host.Platform()
	if _, err := persist.Load(platform.StateDir(), platform.Owner.Name(sandboxID)); err != nil {
		t.Errorf("the new sandbox's record: %v", err)
	}
	if _, err := virtcontainers.Recover(platform, sandboxID, sandboxID, 10*time.Second); err != nil {
		t.Error(err)
	}
}

// A shim that was killed before it had written its record, or while it removed it,
// leaves a directory that is not any pod's. One that is new may be about to get a record.
func TestSweepUnfinishedRecords(t *testing.T) {
	host := newHost(t)
	platform := host.Platform()
	longAgo := time.Now().Add(-time.Hour)
	made := func(name string, at time.Time) string {
		dir := filepath.Join(platform.StateDir(), name)
		if err := os.MkdirAll(filepath.Join(dir, "uds"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	old, fresh := made("old-0123456789ab", longAgo), made("new-0123456789ab", time.Now())
	if _, err := persist.Create(platform.StateDir(), platform.Owner, "nameless"); err != nil {
		t.Fatal(err)
	}
	nameless := made(platform.Owner.Name("nameless"), longAgo)
	if _, err := virtcontainers.Sweep(platform, time.Second); err != nil {
		t.Fatal(err)
	}
	wantNoFile(t, old)
	wantNoFile(t, nameless)
	if _, err := os.Stat(fresh); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(fresh); err != nil {
		t.Error(err)
	}
}
