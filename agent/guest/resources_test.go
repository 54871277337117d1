package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/modules"
)

// newResources makes a machine with two CPUs, the second one offline, and three
// blocks of 128 MiB, the last one offline.
func newResources(t *testing.T) (*Resources, *fakeMachine, *[]string) {
	t.Helper()
	f := newMachine(t)
	offered, loaded := newModules(modules.List{{When: modules.Demand, Name: "virtio_mem", Path: "/m/virtio_mem.ko"}}), &[]string{}
	offered.load = func(path, _ string) error {
		*loaded = append(*loaded, path)
		return nil
	}
	r := NewResources(offered)
	r.sys, r.proc, r.net = f.sys, f.proc, readNetLimits(f.proc)
	f.cpu(t, 0, "")
	f.cpu(t, 1, "0")
	f.write(t, f.sys+"/devices/system/cpu/cpufreq/x", "")
	f.write(t, f.sys+"/devices/system/memory/block_size_bytes", "8000000\n")
	for n, state := range []string{"online", "online", "offline"} {
		f.block(t, n, state)
	}
	return r, f, loaded
}

func (f *fakeMachine) cpu(t *testing.T, n int, online string) {
	t.Helper()
	dir := fmt.Sprintf("%s/devices/system/cpu/cpu%d", f.sys, n)
	must(t, os.MkdirAll(dir, 0o700))
	if online != "" {
		f.write(t, dir+"/online", online+"\n")
	}
}

func (f *fakeMachine) block(t *testing.T, n int, state string) {
	t.Helper()
	f.write(t, fmt.Sprintf("%s/devices/system/memory/memory%d/state", f.sys, n), state+"\n")
}

func (f *fakeMachine) reads(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.sys, file))
	must(t, err)
	return strings.TrimSpace(string(text))
}

func TestOnline(t *testing.T) {
	r, f, loaded := newResources(t)
	f.cpu(t, 10, "0")
	have, err := r.Online(t.Context(), Amount{})
	if err != nil || have.CPUs != 1 {
		t.Errorf("no CPU is wanted: %v, %v", have, err)
	}
	have, err = r.Online(t.Context(), Amount{CPUs: 2})
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(Amount{2, 384}, have); diff != "" {
		t.Error(diff)
	}
	if spare := f.reads(t, "devices/system/cpu/cpu10/online"); spare != "0" {
		t.Errorf("a CPU too many is in use: %q", spare)
	}
	if cpu, block := f.reads(t, "devices/system/cpu/cpu1/online"), f.reads(t, "devices/system/memory/memory2/state"); cpu != "1" || block != "online" {
		t.Errorf("CPU %q, memory %q", cpu, block)
	}
	if have, err := r.Online(t.Context(), Amount{CPUs: 1, MemoryMiB: 100}); err != nil || have != (Amount{2, 384}) {
		t.Errorf("less than there is: %v, %v", have, err)
	}
	if len(*loaded) != 0 {
		t.Errorf("loaded %q for nothing", *loaded)
	}
}

func TestOnlineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f, _ := newResources(t)
		const after = 100 * time.Millisecond
		time.AfterFunc(after, func() { f.cpu(t, 2, "0") })
		time.AfterFunc(after, func() { f.block(t, 3, "offline") })
		began := time.Now()
		have, err := r.Online(t.Context(), Amount{CPUs: 3, MemoryMiB: 512})
		if took := time.Since(began); took < after || took > after+resourcesPoll {
			t.Errorf("took %v", took)
		}
		if err != nil || have != (Amount{3, 512}) {
			t.Errorf("%v, %v", have, err)
		}
	})
}

func TestOnlineGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f, _ := newResources(t)
		f.cpu(t, 2, "refused")
		f.block(t, 3, "going-offline")
		began := time.Now()
		have, err := r.Online(t.Context(), Amount{CPUs: 3, MemoryMiB: 384})
		if have != (Amount{2, 384}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", have, err)
		}
		for _, want := range []string{"2 CPUs and 384 MiB are in use, want 3 and 384", `online cpu2: it is "refused"`, `online memory3: it is "going-offline"`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if took := time.Since(began); took != resourcesWait {
			t.Errorf("gave up after %v, want %v", took, resourcesWait)
		}
	})
}

func TestOnlineWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := newResources(t)
		if !r.calls.TryLock() {
			t.Fatal("a call before the first")
		}
		if have, err := r.Online(t.Context(), Amount{}); have != (Amount{}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", have, err)
		}
	})
}

func TestVirtioMemGetsItsDriver(t *testing.T) {
	r, f, loaded := newResources(t)
	const policy = "module/memory_hotplug/parameters/online_policy"
	f.write(t, filepath.Join(f.sys, policy), "contig-zones\n")
	f.write(t, f.sys+"/bus/virtio/devices/virtio0/device", "0x0002\n")
	want := Amount{MemoryMiB: 128}
	if _, err := r.Online(t.Context(), want); err != nil || len(*loaded) != 0 {
		t.Errorf("a machine without virtio-mem: %v, loaded %q", err, *loaded)
	}
	f.write(t, f.sys+"/bus/virtio/devices/virtio1/device", "0x0018\n")
	if _, err := r.Online(t.Context(), Amount{CPUs: 1}); err != nil || len(*loaded) != 0 {
		t.Errorf("no memory is wanted: %v, loaded %q", err, *loaded)
	}
	for range 2 {
		if _, err := r.Online(t.Context(), want); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"/m/virtio_mem.ko"}, *loaded); diff != "" {
		t.Error(diff)
	}
	if got := f.reads(t, policy); got != "auto-movable" {
		t.Errorf("policy %q", got)
	}
}

func TestLateDrivers(t *testing.T) {
	r, f, loaded := newResources(t)
	r.modules.list = append(r.modules.list, modules.Module{When: modules.Demand, Name: "virtio_rng", Path: "/m/virtio-rng.ko"})
	f.write(t, f.sys+"/bus/virtio/devices/virtio0/device", "0x0018\n")
	if err := r.LoadLateDrivers(); err != nil || len(*loaded) != 0 {
		t.Errorf("a machine without such devices: %v, loaded %q", err, *loaded)
	}
	f.write(t, f.sys+"/bus/virtio/devices/virtio1/device", "0x0004\n")
	f.write(t, f.sys+"/bus/virtio/devices/virtio2/device", "0x0005\n")
	if err := r.LoadLateDrivers(); err == nil || !strings.Contains(err.Error(), "virtio_balloon") {
		t.Errorf("a driver that is not there: %v", err)
	}
	if diff := cmp.Diff([]string{"/m/virtio-rng.ko"}, *loaded); diff != "" {
		t.Error(diff)
	}
}

// A device that has no driver yet gets it, and one that has it is left alone.
func TestLateDriversBind(t *testing.T) {
	r, f, _ := newResources(t)
	r.modules.list = append(r.modules.list, modules.Module{When: modules.Demand, Name: "virtio_rng", Path: "/m/virtio-rng.ko"})
	f.write(t, f.sys+"/bus/virtio/devices/virtio1/device", "0x0004\n")
	if err := r.LoadLateDrivers(); err == nil || !strings.Contains(err.Error(), "find driver of virtio1") {
		t.Errorf("a kernel that cannot be asked for a driver: %v", err)
	}
	f.write(t, f.sys+"/bus/virtio/drivers_probe", "")
	must(t, r.LoadLateDrivers())
	if got := f.reads(t, "bus/virtio/drivers_probe"); got != "virtio1" {
		t.Errorf("asked for the driver of %q, want virtio1", got)
	}
	f.write(t, f.sys+"/bus/virtio/drivers_probe", "")
	must(t, os.Mkdir(f.sys+"/bus/virtio/devices/virtio1/driver", 0o700))
	must(t, r.LoadLateDrivers())
	if got := f.reads(t, "bus/virtio/drivers_probe"); got != "" {
		t.Errorf("asked for the driver of %q, which has one", got)
	}
}

// Drivers are loaded while they cannot have devices, and afterwards they can
// again, also if one is not there.
func TestPreloadLateDrivers(t *testing.T) {
	const autoprobe = "bus/virtio/drivers_autoprobe"
	r, f, _ := newResources(t)
	if err := r.PreloadLateDrivers(); err == nil {
		t.Error("a kernel that cannot keep drivers from devices is no error")
	}
	during := ""
	r.modules.list = append(r.modules.list, modules.Module{When: modules.Demand, Name: "virtio_rng", Path: "/m/virtio-rng.ko"})
	r.modules.load = func(string, string) error {
		during = f.reads(t, autoprobe)
		return nil
	}
	f.write(t, f.sys+"/"+autoprobe, "1\n")
	f.write(t, f.sys+"/bus/virtio/devices/virtio1/device", "0x0004\n")
	f.write(t, f.sys+"/bus/virtio/drivers_probe", "")
	must(t, r.PreloadLateDrivers())
	if after := f.reads(t, autoprobe); during != "0" || after != "1" {
		t.Errorf("autoprobe was %q meanwhile and is %q, want 0 and 1", during, after)
	}
	if got := f.reads(t, "bus/virtio/drivers_probe"); got != "" {
		t.Errorf("%s has a driver: its buffers would be saved", got)
	}
	f.write(t, f.sys+"/bus/virtio/devices/virtio2/device", "0x0005\n")
	if err := r.PreloadLateDrivers(); err == nil || !strings.Contains(err.Error(), "virtio_balloon") {
		t.Errorf("a driver that is not there: %v", err)
	}
	if after := f.reads(t, autoprobe); after != "1" {
		t.Errorf("after a failure autoprobe is %q, want 1", after)
	}
}

func TestMemoryOfAKernelWithoutHotplug(t *testing.T) {
	r, f, _ := newResources(t)
	must(t, os.RemoveAll(filepath.Join(f.sys, memoryDir)))
	if have, err := r.Online(t.Context(), Amount{}); err != nil || have.MemoryMiB < 64 {
		t.Errorf("%v, %v", have, err)
	}
	f.write(t, f.sys+"/devices/system/memory/block_size_bytes", "lots\n")
	if _, err := r.onlineMemory(); err == nil || !strings.Contains(err.Error(), "read size of memory blocks") {
		t.Error(err)
	}
}
