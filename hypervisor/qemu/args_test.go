package qemu

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
)

var update = flag.Bool("update", false, "write the golden files anew")

func goodSpec() hypervisor.Spec {
	return hypervisor.Spec{
		ID:           "4ab1",
		Path:         "/usr/bin/qemu-system-x86_64",
		Accel:        hypervisor.AccelTCG,
		VCPUs:        1,
		MaxVCPUs:     1,
		MemoryMiB:    512,
		Kernel:       "/k/vmlinux",
		Initrd:       "/k/initrd.cpio",
		KernelParams: "console=ttyS0 quiet",

		TranslationMiB: 32,
	}
}

func TestArgsGolden(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*hypervisor.Spec)
		wiring Wiring
	}{
		{"tcg", func(*hypervisor.Spec) {}, Wiring{QMPFD: 3, Firmware: "/usr/share/qemu/qboot.rom", TSCKHz: 2596124}},
		{"kvm", func(s *hypervisor.Spec) { s.Accel, s.MaxVCPUs = hypervisor.AccelKVM, 8 }, Wiring{QMPFD: 3}},
		{"everything", func(s *hypervisor.Spec) {
			s.MachineType, s.Accelerators = "pc-q35-7.2", "kernel_irqchip=on"
			s.CPUFeatures, s.Seccomp = "pmu=off", "on,spawn=deny"
			s.VCPUs, s.MaxVCPUs, s.MemoryMiB = 4, 0, 2048
			s.Initrd, s.KernelParams = "", ""
			s.MaxMemoryMiB, s.MemoryModel, s.MemorySlots = 8192, hypervisor.MemoryDIMM, 10
			s.TranslationMiB = 0
			s.Memory = hypervisor.MemoryBacking{Prealloc: true, Dir: "/mem,ory"}
			s.DiskThreads = 2
			s.ExtraMonitor = hypervisor.ExtraMonitor{Language: hypervisor.MonitorQMPPretty, Path: "/run/a,b/m.sock"}
		}, Wiring{QMPFD: 7, MonitorFD: 8}},
		{"hugepages", func(s *hypervisor.Spec) {
			s.Memory.HugePageMiB, s.VCPUs = 2, 2
			s.ExtraMonitor = hypervisor.ExtraMonitor{Language: hypervisor.MonitorHMP, Path: "/m"}
		}, Wiring{QMPFD: 3, MonitorFD: 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := goodSpec()
			tt.change(&spec)
			args, err := BuildArgs(spec, tt.wiring)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata", tt.name+".golden"), args)
		})
	}
}

// compareGolden expects one argument per line.
func compareGolden(t *testing.T, path string, args []string) {
	t.Helper()
	got := strings.Join(args, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (run with -update to accept):\n%s", path, diff)
	}
}

func TestArgsRefuse(t *testing.T) {
	for name, change := range map[string]func(*hypervisor.Spec){
		"ID with a comma":   func(s *hypervisor.Spec) { s.ID = "a,process=x" },
		"no ID":             func(s *hypervisor.Spec) { s.ID = "" },
		"ID like an option": func(s *hypervisor.Spec) { s.ID = "-x" },
		"machine options":   func(s *hypervisor.Spec) { s.MachineType = "q35,usb=on" },
		"another board":     func(s *hypervisor.Spec) { s.MachineType = "microvm" },
		"no accelerator":    func(s *hypervisor.Spec) { s.Accel = "" },
		"too much code":     func(s *hypervisor.Spec) { s.TranslationMiB = 2049 },
		"strange threads":   func(s *hypervisor.Spec) { s.Threading = "single,x=y" },
		"no memory":         func(s *hypervisor.Spec) { s.MemoryMiB = 0 },
		"too much memory":   func(s *hypervisor.Spec) { s.MemoryMiB = 1 << 40 },
		"too much to plug":  func(s *hypervisor.Spec) { s.MaxMemoryMiB = 1 << 40 },
		"no memory slots":   func(s *hypervisor.Spec) { s.MaxMemoryMiB = 1024 },
		"too many slots":    func(s *hypervisor.Spec) { s.MaxMemoryMiB, s.MemorySlots = 1024, 257 },
		"strange memory":    func(s *hypervisor.Spec) { s.MaxMemoryMiB, s.MemoryModel = 1024, "warp" },
		"half a huge page":  func(s *hypervisor.Spec) { s.MemoryMiB, s.Memory.HugePageMiB = 513, 2 },
		"odd huge pages":    func(s *hypervisor.Spec) { s.MemoryMiB, s.Memory.HugePageMiB = 513, 3 },
		"huge pages, files": func(s *hypervisor.Spec) { s.Memory = hypervisor.MemoryBacking{HugePageMiB: 2, Dir: "/d"} },
		"relative files":    func(s *hypervisor.Spec) { s.Memory.Dir = "d" },
		"strange monitor":   func(s *hypervisor.Spec) { s.ExtraMonitor = hypervisor.ExtraMonitor{Language: "gdb", Path: "/m"} },
		"relative monitor":  func(s *hypervisor.Spec) { s.ExtraMonitor = hypervisor.ExtraMonitor{Language: "hmp", Path: "m"} },
		"long monitor": func(s *hypervisor.Spec) {
			s.ExtraMonitor = hypervisor.ExtraMonitor{Language: "hmp", Path: "/" + strings.Repeat("m", 107)}
		},
		"no CPU":        func(s *hypervisor.Spec) { s.VCPUs = 0 },
		"too many CPUs": func(s *hypervisor.Spec) { s.MaxVCPUs = 289 },
		"no kernel":     func(s *hypervisor.Spec) { s.Kernel = "" },
	} {
		spec := goodSpec()
		change(&spec)
		if args, err := BuildArgs(spec, Wiring{QMPFD: 3}); err == nil {
			t.Errorf("%s: %q", name, args)
		}
	}
}

// A guest whose kernel cannot hold its command line never starts.
func TestCommandLineHasABound(t *testing.T) {
	spec := goodSpec()
	spec.Accel, spec.MaxVCPUs = hypervisor.AccelTCG, spec.VCPUs+1 // more is appended than the caller's
	args, err := BuildArgs(spec, Wiring{QMPFD: 3})
	if err != nil {
		t.Fatal(err)
	}
	line := args[slices.Index(args, "-append")+1]
	for room, want := range map[int]bool{2047: true, 2048: false} {
		long := spec
		long.KernelParams += " " + strings.Repeat("x", room-len(line)-1)
		args, err := BuildArgs(long, Wiring{QMPFD: 3})
		if (err == nil) != want {
			t.Errorf("%d bytes: %v", room, err)
		}
		if err == nil && len(args[slices.Index(args, "-append")+1]) != room {
			t.Errorf("the test has %q", args)
		}
		if err != nil && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "2048") || !strings.Contains(err.Error(), "kernel_params")) {
			t.Errorf("%d bytes: %v", room, err)
		}
	}
}

// With TCG the guest's kernel does not start the CPUs that it may not use at
// boot.
func TestKernelStartsFirstCPUs(t *testing.T) {
	for _, tt := range []struct {
		accel     hypervisor.Accel
		cpus, max uint32
		params    string
		want      []string
	}{
		{hypervisor.AccelTCG, 2, 4, "quiet", []string{"-kernel", "k", "-append", "quiet maxcpus=2"}},
		{hypervisor.AccelTCG, 2, 4, "", []string{"-kernel", "k", "-append", "maxcpus=2"}},
		{hypervisor.AccelTCG, 2, 0, "quiet", []string{"-kernel", "k", "-append", "quiet"}},
		{hypervisor.AccelKVM, 2, 4, "", []string{"-kernel", "k"}},
	} {
		got := kernel(hypervisor.Spec{Accel: tt.accel, VCPUs: tt.cpus, MaxVCPUs: tt.max, Kernel: "k", KernelParams: tt.params})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt, diff)
		}
	}
}

// QEMU's TCG needs two possible CPUs for memory barriers (see smp).
func TestTCGHasTwoPossibleCPUs(t *testing.T) {
	for _, tt := range []struct {
		accel     hypervisor.Accel
		cpus, max uint32
		want      string
	}{
		{hypervisor.AccelTCG, 1, 0, "1,maxcpus=2,sockets=2,cores=1,threads=1"},
		{hypervisor.AccelTCG, 1, 1, "1,maxcpus=2,sockets=2,cores=1,threads=1"},
		{hypervisor.AccelTCG, 1, 4, "4,maxcpus=4,sockets=4,cores=1,threads=1"},
		{hypervisor.AccelTCG, 3, 1, "3,maxcpus=3,sockets=3,cores=1,threads=1"},
		{hypervisor.AccelKVM, 1, 1, "1,maxcpus=1,sockets=1,cores=1,threads=1"},
		{hypervisor.AccelKVM, 1, 6, "1,maxcpus=6,sockets=6,cores=1,threads=1"},
	} {
		if got := smp(hypervisor.Spec{Accel: tt.accel, VCPUs: tt.cpus, MaxVCPUs: tt.max}); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// Without memory hot-plug there is no room for it, and no cost.
func TestMemoryArgument(t *testing.T) {
	for _, tt := range []struct {
		most  uint64
		model hypervisor.MemoryModel
		slots uint32
		want  string
	}{
		{0, "", 0, "512M"},
		{256, "", 0, "512M"},
		{512, hypervisor.MemoryDIMM, 10, "512M"},
		{1024, "", 10, "512M,slots=10,maxmem=1024M"},
		{1024, hypervisor.MemoryDIMM, 2, "512M,slots=2,maxmem=1024M"},
		{1024, hypervisor.MemoryVirtio, 0, "512M,maxmem=1024M"},
	} {
		spec := goodSpec()
		spec.MaxMemoryMiB, spec.MemoryModel, spec.MemorySlots = tt.most, tt.model, tt.slots
		if got := memory(spec); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
		args, err := BuildArgs(spec, Wiring{})
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		room := tt.want != "512M"
		if bounces := !strings.Contains(strings.Join(args, " "), "-append nolapic_timer swiotlb=noforce console="); bounces == room {
			t.Errorf("%+v: %q", tt, args)
		}
	}
}

// The parameters and the machine go together: without an HPET, nolapic_timer would
// leave the guest without a timer, and with several CPUs it may die at boot.
func TestTimersMatchParams(t *testing.T) {
	for _, tt := range []struct {
		accel         hypervisor.Accel
		vcpus         uint32
		hpet, nolapic bool
	}{
		{hypervisor.AccelTCG, 1, true, true},
		{hypervisor.AccelTCG, 2, true, false},
		{hypervisor.AccelKVM, 1, false, false},
		{hypervisor.AccelKVM, 2, false, false},
	} {
		spec := goodSpec()
		spec.Accel, spec.VCPUs, spec.MaxVCPUs = tt.accel, tt.vcpus, 4
		spec.KernelParams = DefaultKernelParams(tt.accel)
		args, err := BuildArgs(spec, Wiring{})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(args, " ")
		if hpet := !strings.Contains(all, "hpet=off"); hpet != tt.hpet {
			t.Errorf("%s, %d CPUs: HPET %v", tt.accel, tt.vcpus, hpet)
		}
		if nolapic := strings.Contains(all, "nolapic_timer"); nolapic != tt.nolapic {
			t.Errorf("%s, %d CPUs: nolapic_timer %v", tt.accel, tt.vcpus, nolapic)
		}
	}
}
