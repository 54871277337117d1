package guesttest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/agent/pci"
)

// set requests CPUs and memory and checks that it gets them.
func (m *machine) set(t *testing.T, cpus uint32, mib uint64) {
	t.Helper()
	began := time.Now()
	resp, err := m.guest.SetResources(t.Context(), &api.SetResourcesRequest{Cpus: cpus, MemoryMib: mib})
	if err != nil || resp.GetCpus() < cpus || resp.GetMemoryMib() < mib {
		t.Errorf("%v, %v, want %d CPUs, %d MiB", resp, err, cpus, mib)
	}
	t.Logf("%d CPUs, %d MiB after %v", resp.GetCpus(), resp.GetMemoryMib(), time.Since(began))
}

func TestGuestResources(t *testing.T) {
	m := guestOnly(t)
	resp, err := m.guest.SetResources(t.Context(), &api.SetResourcesRequest{})
	if err != nil || resp.GetCpus() != 1 || resp.GetMemoryMib() != startMiB {
		t.Errorf("before: %v, %v", resp, err)
	}
	before := memTotal(t)
	const id = "sized"
	m.pause(t, id) // A container sees CPUs that are plugged later.
	tracks := shell("cat " + conntrackMax)
	tracks.Linux.Sysctl = map[string]string{"net.netfilter.nf_conntrack_acct": "0"} // loads the module
	if r := m.run(t, "tracks", tracks); r.out == "" || r.out == trackedByMoreThanAGiB {
		t.Errorf("connections that a small guest tracks: %+v", r)
	}
	m.set(t, 2, 0)
	wants("dimm")
	m.set(t, 2, startMiB+dimmMiB)
	wants("virtio-mem")
	m.set(t, 2, startMiB+dimmMiB+vmemMiB)
	if r := m.exec(t, id, "nproc", process("nproc; cat /sys/fs/cgroup/cpuset.cpus.effective")); r.out != "2\n0-1\n" {
		t.Errorf("a running container: %+v", r)
	}
	if r := m.run(t, "later", shell("nproc")); r.out != "2\n" {
		t.Errorf("a new container: %+v", r)
	}
	if now := memTotal(t); now < before+dimmMiB+vmemMiB {
		t.Errorf("MemTotal was %d MiB and is %d", before, now)
	}
	threads, err := strconv.Atoi(strings.TrimSpace(fileIn(t, "/proc/sys/kernel/threads-max")))
	if want := threadsPerMiB*(startMiB+dimmMiB+vmemMiB) + guest.ReservedThreads; err != nil || threads < want {
		t.Errorf("the kernel allows %d threads, want %d for this much memory: %v", threads, want, err)
	}
	if got := strings.TrimSpace(fileIn(t, "/sys/fs/cgroup/katabox/pids.max")); got != strconv.Itoa(threads-guest.ReservedThreads) {
		t.Errorf("containers may have %s threads of %d", got, threads)
	}
	if got := fileIn(t, conntrackMax); got != trackedByMoreThanAGiB {
		t.Errorf("connections that the grown guest tracks: %s, want %s", got, trackedByMoreThanAGiB)
	}
	resp, err = m.guest.SetResources(t.Context(), &api.SetResourcesRequest{Cpus: 1, MemoryMib: startMiB})
	if err != nil || resp.GetCpus() != 2 || resp.GetMemoryMib() != startMiB+dimmMiB+vmemMiB {
		t.Errorf("less: %v, %v", resp, err)
	}
	wants("virtio-mem back")
	m.gaveBack(t, startMiB+dimmMiB)
}

const (
	conntrackMax = "/proc/sys/net/netfilter/nf_conntrack_max"
	// trackedByMoreThanAGiB is what the kernel chooses with 1 to 4 GiB.
	trackedByMoreThanAGiB = "65536\n"
)

// threadsPerMiB is how many threads Linux allows for each MiB of its memory: an
// eighth of it may be their stacks of 16 KiB (kernel/fork.c, set_max_threads).
const threadsPerMiB = 8

// A container's users may have any number of processes and timers, however small the
// guest is.
func TestGuestProcesses(t *testing.T) {
	m := guestOnly(t)
	const limit = "ulimit -u; ulimit -Hu; ulimit -i; ulimit -Hi"
	want := strings.Repeat("unlimited\n", 4)
	if r := m.run(t, "processes", shell(limit)); r.out != want {
		t.Errorf("a container: %+v", r)
	}
	if r := m.run(t, "process-ids", shell("cat /proc/sys/kernel/pid_max")); r.out != "4194304\n" {
		t.Errorf("process ids: %+v", r)
	}
	m.pause(t, "processes-exec")
	if r := m.exec(t, "processes-exec", "limit", process(limit)); r.out != want {
		t.Errorf("an exec: %+v", r)
	}
}

// A program that crashes in a container leaves its core where it was, as with runc from an
// engine that systemd started.
func TestGuestCores(t *testing.T) {
	m := guestOnly(t)
	script := shell("ulimit -c; ulimit -Hc; cd /dev/shm && sh -c 'kill -SEGV $$'; ls /dev/shm")
	script.Mounts = append(script.Mounts, specs.Mount{Type: "tmpfs", Source: "shm", Destination: "/dev/shm"})
	if r := m.run(t, "cores", script); !strings.HasSuffix(r.out, "unlimited\nunlimited\ncore\n") {
		t.Errorf("a container: %+v", r)
	}
}

// A process may lock as much memory as it may have, in the first container and in later
// ones.
func TestGuestLockedMemory(t *testing.T) {
	m := guestOnly(t)
	const limit, want = "ulimit -l; ulimit -Hl", "unlimited\nunlimited\n"
	for _, id := range []string{"locked", "locked-again"} {
		if r := m.run(t, id, shell(limit)); r.out != want {
			t.Errorf("%s: %+v", id, r)
		}
	}
	m.pause(t, "locked-exec")
	if r := m.exec(t, "locked-exec", "limit", process(limit)); r.out != want {
		t.Errorf("an exec: %+v", r)
	}
}

// gaveBack waits until no more than mib of memory is in use.
func (m *machine) gaveBack(t *testing.T, mib uint64) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	have, err := pci.Await(ctx, func() (uint64, error) {
		resp, err := m.guest.SetResources(ctx, &api.SetResourcesRequest{})
		if err == nil && resp.GetMemoryMib() > mib {
			err = errdefs.ErrNotFound
		}
		return resp.GetMemoryMib(), err
	})
	if err != nil || have != mib {
		t.Errorf("%d MiB are in use, want %d: %v", have, mib, err)
	}
	t.Logf("given back after %v", time.Since(began))
}

// memTotal returns the guest kernel's total memory, in MiB.
func memTotal(t *testing.T) (mib uint64) {
	t.Helper()
	if _, err := fmt.Sscanf(fileIn(t, "/proc/meminfo"), "MemTotal: %d kB", &mib); err != nil {
		t.Error(err)
	}
	return mib >> 10
}
