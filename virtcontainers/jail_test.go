package virtcontainers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/persist"
)

const onlyUser = 1_900_000_001

// jailedPod returns options with a range of a single user id, and memory in
// files in dir.
func jailedPod(dir string) virtcontainers.Options {
	return withMachine(func(h *config.Hypervisor) {
		h.Rootless, h.FirstUID, h.UIDs, h.Memory.Dir = true, onlyUser, 1, dir
	})
}

// No other machine gets a machine's user while it lives, and the user owns its
// directory for memory.
func TestMachineOfItsOwnUser(t *testing.T) {
	host, dir := newHost(t), t.TempDir()
	s, err := virtcontainers.New(t.Context(), host.Platform(), jailedPod(dir))
	if err != nil {
		t.Fatal(err)
	}
	spec := host.VM().Spec
	if spec.Jail == nil || spec.Jail.UID != onlyUser || spec.Jail.GID != onlyUser {
		t.Fatalf("jail: %+v", spec.Jail)
	}
	var st unix.Stat_t
	if err := unix.Stat(spec.Memory.Dir, &st); err != nil || filepath.Dir(spec.Memory.Dir) != dir || st.Uid != onlyUser || st.Gid != onlyUser || st.Mode&0o777 != 0o700 {
		t.Errorf("%s: %+v, %v", spec.Memory.Dir, st, err)
	}
	rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
	if err != nil || rec.MemoryDir != spec.Memory.Dir {
		t.Errorf("the record has %q, %v", rec.MemoryDir, err)
	}
	// Another pod on the host.
	other := jailedPod("")
	other.ID = "other"
	if _, err := virtcontainers.New(t.Context(), host.Platform(), other); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("a second machine: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A machine that does not end keeps its user and its cgroups.
func TestMachineThatStays(t *testing.T) {
	t.Parallel() // it waits
	host := newHost(t)
	s, err := virtcontainers.New(t.Context(), host.Platform(), jailedPod(""))
	if err != nil {
		t.Fatal(err)
	}
	host.Monitor.Fail(fake.StepStop, errInjected)
	err = s.Stop(t.Context())
	for _, step := range []string{"undo vm: the machine's process", "undo state: its user id, cgroups and record stay"} {
		if err == nil || !strings.Contains(err.Error(), step) {
			t.Errorf("%q is not in %v", step, err)
		}
	}
	other := jailedPod("")
	other.ID = "other"
	if _, err := virtcontainers.New(t.Context(), host.Platform(), other); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("a second machine: %v", err)
	}
	host.VM().Die(errDied)
	removeMarked(t, host)
}

// What a machine that does not end in time leaves is in the record, also if it ends while
// the rest is undone.
func TestMachineEndsDuringTheUndos(t *testing.T) {
	t.Parallel() // it waits
	for after := range 20 {
		host, dir := newHost(t), t.TempDir()
		s, err := virtcontainers.New(t.Context(), host.Platform(), jailedPod(dir))
		if err != nil {
			t.Fatal(err)
		}
		host.Monitor.Hook(fake.StepStop, func(_ context.Context, vm *fake.VM) error {
			time.AfterFunc(time.Duration(after)*500*time.Microsecond, func() { vm.Die(errDied) })
			return errInjected
		})
		_ = s.Stop(t.Context()) // it may still have ended in time
		left, err := os.ReadDir(dir)
		_, recorded := os.Stat(host.Platform().PodDir(sandboxID))
		if err != nil || len(left) > 0 && recorded != nil {
			t.Errorf("left: %v, %v, and the record: %v", left, err, recorded)
		}
		host.VM().Die(errDied)
		if recorded == nil {
			removeMarked(t, host)
		}
	}
}

// A failed boot releases its user: the next boot gets it, although it is the
// only one.
func TestUserOfFailedBoot(t *testing.T) {
	host, dir := newHost(t), t.TempDir()
	_, err := virtcontainers.New(t.Context(), host.Platform(), jailedPod(filepath.Join(dir, "missing")))
	if err == nil || !strings.Contains(err.Error(), "file_mem_backend") {
		t.Errorf("without a directory for memory: %v", err)
	}
	for _, step := range []string{"user", "vm", "resume"} {
		platform := host.Platform()
		platform.Failpoint = step
		if _, err := virtcontainers.New(t.Context(), platform, jailedPod(dir)); err == nil || !strings.Contains(err.Error(), "failpoint "+step) {
			t.Errorf("%s: %v", step, err)
		}
	}
	if err := bootWith(t, host, jailedPod(dir)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A dead pod's directory for memory is removed with its record.
func TestRecoverMemoryDir(t *testing.T) {
	host, dir := newHost(t), filepath.Join(t.TempDir(), "memory")
	if err := os.MkdirAll(filepath.Join(dir, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	platform := host.Platform()
	state, err := persist.Create(platform.StateDir(), platform.Owner, sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Update(func(r *persist.Record) { r.MemoryDir = dir }); err != nil {
		t.Fatal(err)
	}
	if _, err := virtcontainers.Recover(platform, sandboxID, sandboxID, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}
