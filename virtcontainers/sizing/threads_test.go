package sizing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/katabox/katabox/virtcontainers/config"
)

// threadCgroup makes a cgroup on the host with a limit of threads, and returns the path
// for a container's cgroup in it, and a function that changes the limit.
func threadCgroup(t *testing.T, limit string) (path string, set func(limit string)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("makes cgroups, which needs root")
	}
	path = fmt.Sprintf("/kbtest-threads-%d", os.Getpid())
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(root, path)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("the host's cgroups cannot be written: %v", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		set = func(limit string) {
			if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(limit), 0); err != nil {
				t.Skipf("the host's cgroups limit no threads: %v", err)
			}
		}
		set(limit)
		return path + "/c", set
	}
	t.Skip("the host has no cgroup for threads")
	return "", nil
}

// All containers together may have as many threads in the guest as the pod's cgroup on
// the host allows.
func TestThreadsTogether(t *testing.T) {
	cgroup, set := threadCgroup(t, "77")
	p, g := limitedPod(t, cgroup, 0, nil)
	for i, test := range []struct {
		limit string
		want  uint64
	}{{"77", 77}, {"99", 99}, {"99", 99}, {"max", 0}} {
		set(test.limit)
		if _, err := p.Admit(t.Context(), container(fmt.Sprint(i), 0)); err != nil {
			t.Fatal(err)
		}
		if g.threads != test.want {
			t.Errorf("with a limit of %s threads the guest has one of %d, want %d", test.limit, g.threads, test.want)
		}
	}
	if want := []uint64{0, 0, 0}; !slices.Equal(g.limits, want) {
		t.Errorf("limits of memory: %d, want %d: one for each change", g.limits, want)
	}
}

// A new limit of threads of the pod alone is found, and taken over: also one that the
// pod's parent has got later, without a limit of memory.
func TestThreadsAreWatched(t *testing.T) {
	cgroup, set := threadCgroup(t, "max")
	p, g := limitedPod(t, cgroup, 0, nil)
	l := p.newLookout()
	p.opts.EnterAwake = func(context.Context) (func(), error) { return func() {}, nil }
	if _, err := p.Admit(t.Context(), container("c1", 0)); err != nil {
		t.Fatal(err)
	}
	if !p.isWatched() || l.hasChanged(t) {
		t.Error("the pod does not look at its parent's limits, or one that is the same has changed")
	}
	set("88")
	if !l.hasChanged(t) || l.hasChanged(t) {
		t.Error("another limit has not changed, or twice")
	}
	if err := l.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g.threads != 88 {
		t.Errorf("the guest has a limit of %d threads, want 88", g.threads)
	}
}

// A machine's threads are its vCPUs', those of QEMU's pools for disks with the kernel's for
// io_uring, and the kernel's of vhost.
func TestThreadsOfAMachine(t *testing.T) {
	uring := uint64(min(128, 4*config.HostCPUs()))
	for name, test := range map[string]struct {
		change func(*config.Hypervisor)
		want   uint64
	}{
		"threads":                 {func(h *config.Hypervisor) { h.BlockAIO, h.DisableVhostNet = config.AIOThreads, true }, 4 + 64 + 64 + 1},
		"vhost-net for each vCPU": {func(h *config.Hypervisor) { h.BlockAIO, h.DefaultVCPUs = config.AIONative, 3 }, 4 + 64 + 64 + 1 + 3*2},
		"io_uring":                {func(h *config.Hypervisor) { h.BlockAIO, h.DisableVhostNet = config.AIOUring, true }, 4 + 64 + uring + 64 + 1},
		"io_uring in threads for disks": {func(h *config.Hypervisor) {
			h.BlockAIO, h.DisableVhostNet, h.IndepIOThreads = config.AIOUring, true, 2
		}, 4 + 3*(64+uring) + 2 + 64 + 1},
	} {
		c := new(config.Config)
		c.Hypervisor.DefaultVCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 1, 4, 256, 1024
		test.change(&c.Hypervisor)
		p, err := New(t.Context(), Options{SandboxID: "pod", Config: c})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.vmThreads(); got != test.want {
			t.Errorf("%s: %d threads, want %d", name, got, test.want)
		}
	}
	for cpus, want := range map[int]uint64{1: 4, 31: 124, 32: 128, 512: 128} {
		if got := uringWorkers(cpus); got != want {
			t.Errorf("io_uring on %d CPUs: %d threads, want %d", cpus, got, want)
		}
	}
}

// A machine that starts with a template's size has as many queues as one that boots.
func TestNICQueuesOfTheOwnSize(t *testing.T) {
	c := new(config.Config)
	c.Hypervisor.DefaultVCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 3, 4, 256, 1024
	plain := *c
	plain.Hypervisor.DefaultVCPUs = 1
	c.Plain = &plain
	p, err := New(t.Context(), Options{SandboxID: "pod", Config: c})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.StartPlain(); !ok || p.Initial().VCPUs != 1 || p.NICQueues() != 3 {
		t.Errorf("started plain: %v, with %d vCPUs and %d queues", ok, p.Initial().VCPUs, p.NICQueues())
	}
}
