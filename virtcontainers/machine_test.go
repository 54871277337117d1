package virtcontainers_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// withMachine returns options of a pod with a changed configuration.
func withMachine(change func(*config.Hypervisor)) virtcontainers.Options {
	opts := options(newObserver())
	opts.Config = fakeguest.Config()
	change(&opts.Config.Hypervisor)
	return opts
}

func bootWith(t *testing.T, host *fakeguest.Host, opts virtcontainers.Options) error {
	t.Helper()
	s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err == nil {
		err = s.Stop(t.Context())
	}
	return err
}

// The machine's spec follows the configuration.
func TestMachineSpec(t *testing.T) {
	host := newHost(t)
	opts := withMachine(func(h *config.Hypervisor) {
		h.Memory = config.Memory{Prealloc: true, Dir: "/mem"}
		h.DumpDir, h.DumpPaging, h.Firmware = "/crash", true, "/firmware"
		h.IOThreads, h.IndepIOThreads, h.ExtraMonitor = true, 3, config.MonitorHMP
	})
	if err := bootWith(t, host, opts); err != nil {
		t.Fatal(err)
	}
	got := host.VM().Spec
	want := hypervisor.MemoryBacking{Prealloc: true, Dir: "/mem"}
	if diff := cmp.Diff(want, got.Memory); diff != "" || got.DiskThreads != 3 || got.Firmware != "/firmware" {
		t.Errorf("%d threads, firmware %q, memory: %s", got.DiskThreads, got.Firmware, diff)
	}
	if diff := cmp.Diff(hypervisor.PanicDump{Dir: "/crash/" + sandboxID, Paging: true}, got.PanicDump); diff != "" {
		t.Error(diff)
	}
	if modules := host.Agent.Setup().GetKernelModules(); !slices.Equal(modules, []string{"pvpanic_pci"}) {
		t.Errorf("the guest loads %q", modules)
	}
	socket := filepath.Join(host.Platform().StateDir(), sandboxID, "qemu.sock")
	if diff := cmp.Diff(hypervisor.ExtraMonitor{Language: "hmp", Path: socket}, got.ExtraMonitor); diff != "" {
		t.Error(diff)
	}
}

func TestMachineDevices(t *testing.T) {
	host := newHost(t)
	opts := withMachine(func(h *config.Hypervisor) { h.EntropySource, h.Memory.Reclaim = "/dev/zero", true })
	if err := bootWith(t, host, opts); err != nil {
		t.Fatal(err)
	}
	var rng, balloon bool
	for _, d := range host.VM().Devices() {
		switch d := d.(type) {
		case hypervisor.RNG:
			rng = d.File.Name() == "/dev/zero"
		case hypervisor.Balloon:
			balloon = true
		}
	}
	if !rng || !balloon {
		t.Errorf("devices: %+v", host.VM().Devices())
	}
}

// An unusable source of random numbers fails the boot with the key's name, and
// does not hang it.
func TestMachineWithoutItsDevices(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"/nonexistent/random": "hardware: hypervisor.qemu.entropy_source: open /nonexistent/random",
		fifo:                  "hardware: hypervisor.qemu.entropy_source: " + fifo + " is neither a character device nor a regular file",
	} {
		host := newHost(t)
		err := bootWith(t, host, withMachine(func(h *config.Hypervisor) { h.EntropySource = source }))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
		checkNothingLeft(t, host)
	}
	for _, kind := range []hypervisor.Device{hypervisor.RNG{}, hypervisor.Balloon{}} {
		host := newHost(t)
		host.Monitor.Fail(fake.AttachStep(kind), errInjected)
		err := bootWith(t, host, withMachine(func(h *config.Hypervisor) { h.EntropySource, h.Memory.Reclaim = "/dev/zero", true }))
		if err == nil || !strings.Contains(err.Error(), "hardware: ") {
			t.Errorf("%T: %v", kind, err)
		}
		checkNothingLeft(t, host)
	}
}

// With too few huge pages the error names the key that requests them.
func TestHugePages(t *testing.T) {
	host := newHost(t)
	opts := withMachine(func(h *config.Hypervisor) { h.Memory.HugePages, h.MemoryMiB = true, 257 })
	host.Monitor.Fail(fake.StepLaunch, errdefs.ErrResourceExhausted)
	err := bootWith(t, host, opts)
	if errdefs.IsFailedPrecondition(err) {
		t.Skip("this host has no huge pages:", err)
	}
	if err == nil || !strings.Contains(err.Error(), "vm: hypervisor.qemu.enable_hugepages: ") {
		t.Errorf("too few: %v", err)
	}
	host.Monitor.Fail(fake.StepLaunch, nil)
	if err := bootWith(t, host, opts); err != nil {
		t.Fatal(err)
	}
	spec := host.VM().Spec
	if page := spec.Memory.HugePageMiB; page < 2 || spec.MemoryMiB <= 257 || spec.MemoryMiB%page != 0 {
		t.Errorf("%d MiB of pages of %d MiB", spec.MemoryMiB, page)
	}
}
