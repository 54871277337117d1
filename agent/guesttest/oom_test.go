package guesttest

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

// limited is a container that runs a script with 32 MiB of memory.
func limited(script string) *specs.Spec {
	spec := shell(script)
	spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: ptr(int64(32 << 20)), Swap: ptr(int64(32 << 20))}
	return spec
}

func TestGuestOOM(t *testing.T) {
	m := guestOnly(t)
	if r := m.run(t, "oom", limited("tail /dev/zero")); r.exit.GetStatus() != 137 {
		t.Errorf("%+v", r)
	}
	if words := m.told("oom"); !slices.Equal(words, []string{"oom", "exit "}) {
		t.Errorf("events %q", words)
	}
}

// A kill is reported while the container runs on, and each kill once.
func TestGuestOOMOfOneProcess(t *testing.T) {
	m := guestOnly(t)
	m.start(t, "survivor", limited("tail /dev/zero; exec sleep 1000"))
	m.awaitTold(t, "survivor", "oom")
	if r := m.exec(t, "survivor", "greedy", process("tail /dev/zero")); r.exit.GetStatus() != 137 {
		t.Errorf("%+v", r)
	}
	m.awaitTold(t, "survivor", "oom", "oom", "exit greedy")
}

// Containers that use more than the pod may together: the kernel kills in the one that
// uses most, which is told, and the other goes on.
func TestGuestOOMOfThePod(t *testing.T) {
	m := guestOnly(t)
	limit := func(bytes uint64) {
		t.Helper()
		if _, err := m.guest.LimitContainers(t.Context(), &api.LimitContainersRequest{Memory: bytes}); err != nil {
			t.Fatal(err)
		}
	}
	limit(64 << 20)
	defer limit(0)
	m.start(t, "modest", shell("dd if=/dev/zero bs=16M count=1 | sleep 1000"))
	if r := m.run(t, "large", shell("exec tail /dev/zero")); r.exit.GetStatus() != 137 {
		t.Errorf("%+v", r)
	}
	if words := m.told("large"); !slices.Equal(words, []string{"oom", "exit "}) {
		t.Errorf("events %q", words)
	}
	if words := m.told("modest"); len(words) != 0 {
		t.Errorf("events of the other container %q", words)
	}
}

// The watch takes none of the inotify instances that root has, for all containers
// together.
func TestGuestOOMWithoutInotify(t *testing.T) {
	m := guestOnly(t)
	const limit = "/proc/sys/fs/inotify/max_user_instances"
	before, err := os.ReadFile(limit)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(limit, before, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(limit, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	m.start(t, "without", limited("tail /dev/zero; exec sleep 1000"))
	m.awaitTold(t, "without", "oom")
}

// awaitTold waits until a container has had these events, as words.
func (m *machine) awaitTold(t *testing.T, id string, want ...string) {
	t.Helper()
	var words []string
	for deadline := time.Now().Add(callTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if words = m.told(id); slices.Equal(words, want) {
			return
		}
	}
	t.Errorf("events %q, want %q", words, want)
}

// Nothing is left of a container whose cgroup is removed as soon as it has changed. The
// kernel then loses the events of the cgroup that wait for its timer.
func TestGuestOOMWatchEnds(t *testing.T) {
	m := guestOnly(t)
	before := leftovers(t)
	for i := range 20 {
		id := fmt.Sprint("brief", i)
		if _, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: id, Options: packed(t, shell("sleep 1000"), false)}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		for _, do := range []func() error{
			func() error { _, err := m.task.Pause(t.Context(), &taskapi.PauseRequest{ID: id}); return err },
			func() error { _, err := m.task.Kill(t.Context(), &taskapi.KillRequest{ID: id, Signal: 9}); return err },
			func() error { _, err := m.task.Wait(t.Context(), &taskapi.WaitRequest{ID: id}); return err },
			func() error { _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id}); return err },
		} {
			if err := do(); err != nil {
				t.Error(err)
			}
		}
	}
	awaitLeftovers(t, before)
}
