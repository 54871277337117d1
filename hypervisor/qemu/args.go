package qemu

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/katabox/katabox/hypervisor"
)

const (
	// defaultMachine is the board when the spec names none.
	defaultMachine = "q35"
	// podBus is the bridge for all devices of the pod: q35's root bus does not
	// support hot-plug, and every device that is added over QMP is hot-plugged
	// to QEMU, even while the machine is paused.
	podBus = "pod"
	// podBusSlot is that bridge's slot on the root bus, and firstSlot to
	// lastSlot are the slots on it that devices may have: slot 0 is its
	// hot-plug controller's (QEMU's hw/pci/shpc.c).
	podBusSlot          = 1
	firstSlot, lastSlot = 1, 31
	// maxMemoryMiB, 16 TiB, keeps a typing error from becoming an allocation.
	maxMemoryMiB = 16 << 20
	// maxTranslationMiB is the range of a jump on x86-64 (QEMU's tcg/region.c,
	// MAX_CODE_GEN_BUFFER_SIZE).
	maxTranslationMiB = 2048
	// maxMemorySlots is QEMU's ACPI_MAX_RAM_SLOTS (include/hw/acpi/acpi.h).
	maxMemorySlots = 256
	// maxCPUs is q35's limit without an IOMMU (QEMU's hw/i386/pc_q35.c).
	maxCPUs = 288
)

var (
	// word matches what may be between two commas in QEMU's option syntax.
	word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	// q35 matches the boards that have what machine and podBus rely on.
	q35 = regexp.MustCompile(`^(pc-)?q35(-[A-Za-z0-9._-]+)?$`)
)

// Wiring connects a QEMU process to this one, and has the host's data that it needs.
type Wiring struct {
	// QMPFD is the QMP socket's descriptor in QEMU's process.
	QMPFD int
	// MonitorFD is that of the extra monitor's listening socket, if the spec has
	// one.
	MonitorFD int
	// MemoryFD is that of the template's sealed memory, if the spec has it.
	MemoryFD int
	// Firmware is the path of a firmware image; empty is QEMU's default.
	Firmware string
	// TSCKHz is the rate of the host's time stamp counter, for TCG guests; 0 is
	// unknown.
	TSCKHz uint64
}

// BuildArgs turns a machine into QEMU's arguments (without argv[0]). The
// guest's console is QEMU's standard output.
func BuildArgs(spec hypervisor.Spec, wiring Wiring) ([]string, error) {
	if err := checkSpec(spec); err != nil {
		return nil, fmt.Errorf("build QEMU arguments: %w", err)
	}
	args := []string{
		"-name", "sandbox-" + spec.ID + ",debug-threads=on",
		"-no-user-config", "-nodefaults", "-display", "none",
		"-S", "-no-reboot",
		"-machine", machine(spec),
		"-accel", accel(spec),
		"-cpu", cpu(spec),
		"-smp", smp(spec),
		"-m", memory(spec),
		"-object", bootMemory(spec, wiring),
		"-rtc", "base=utc",
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d", wiring.QMPFD),
		"-mon", "chardev=qmp,mode=control",
		"-chardev", "stdio,id=console,signal=off",
		"-device", ModelConsole + ",chardev=console",
		"-device", fmt.Sprintf("%s,id=%s,bus=pcie.0,addr=%#x,chassis_nr=1,shpc=on", ModelBridge, podBus, podBusSlot),
	}
	args = append(args, timers(spec)...)
	args = append(args, diskThreads(spec)...)
	args = append(args, extraMonitor(spec.ExtraMonitor, wiring.MonitorFD)...)
	args = append(args, panicDevice(spec)...)
	if wiring.Firmware != "" {
		args = append(args, "-bios", wiring.Firmware)
	}
	if spec.Seccomp != "" {
		args = append(args, "-sandbox", spec.Seccomp)
	}
	if spec.Template != nil || spec.Awaits != nil {
		args = append(args, "-incoming", "defer")
	}
	spec.KernelParams = kernelParams(spec, wiring)
	if err := checkCommandLine(commandLine(spec)); err != nil {
		return nil, fmt.Errorf("build QEMU arguments: %w", err)
	}
	return append(args, kernel(spec)...), nil
}

// kernelParams puts what follows from the machine before the caller's
// parameters, so that these prevail.
func kernelParams(spec hypervisor.Spec, wiring Wiring) string {
	var words []string
	if spec.Accel == hypervisor.AccelTCG && wiring.TSCKHz > 0 {
		words = append(words, fmt.Sprintf("tsc_early_khz=%d", wiring.TSCKHz))
	}
	if spec.Accel == hypervisor.AccelTCG && spec.VCPUs == 1 {
		words = append(words, "nolapic_timer") // see timers
	}
	if pluggable(spec) {
		// Room for hot-plugged memory is above 4 GiB, and Linux would reserve
		// 64 MiB at boot to bounce 32-bit devices' transfers there
		// (arch/x86/kernel/pci-dma.c, pci_swiotlb_detect). There are no such
		// devices.
		words = append(words, "swiotlb=noforce")
	}
	if spec.KernelParams != "" {
		words = append(words, spec.KernelParams)
	}
	return strings.Join(words, " ")
}

func checkSpec(spec hypervisor.Spec) error {
	switch {
	case !word.MatchString(spec.ID):
		return fmt.Errorf("machine ID %q: not a word of letters, digits, '.', '_' and '-'", spec.ID)
	case spec.MachineType != "" && !q35.MatchString(spec.MachineType):
		return fmt.Errorf("machine type %q: not a q35 board", spec.MachineType)
	case spec.Accel != hypervisor.AccelKVM && spec.Accel != hypervisor.AccelTCG:
		return fmt.Errorf("accelerator %q: neither %q nor %q", spec.Accel, hypervisor.AccelKVM, hypervisor.AccelTCG)
	case !slices.Contains([]hypervisor.Threading{"", hypervisor.ThreadingAuto, hypervisor.ThreadingMulti, hypervisor.ThreadingSingle}, spec.Threading):
		return fmt.Errorf("threading %q: none of %q, %q and %q", spec.Threading, hypervisor.ThreadingAuto, hypervisor.ThreadingMulti, hypervisor.ThreadingSingle)
	case spec.Kernel == "":
		return errors.New("no kernel is given")
	}
	if err := checkSizes(spec); err != nil {
		return err
	}
	if err := checkMonitor(spec.ExtraMonitor); err != nil {
		return err
	}
	if err := checkBacking(spec); err != nil {
		return err
	}
	return checkModel(spec)
}

func checkSizes(spec hypervisor.Spec) error {
	switch {
	case spec.TranslationMiB > maxTranslationMiB:
		return fmt.Errorf("translation buffer of %d MiB: not within 0 and %d", spec.TranslationMiB, maxTranslationMiB)
	case spec.MemoryMiB == 0 || spec.MemoryMiB > maxMemoryMiB:
		return fmt.Errorf("memory of %d MiB: not within 1 and %d", spec.MemoryMiB, maxMemoryMiB)
	case spec.MaxMemoryMiB > maxMemoryMiB:
		return fmt.Errorf("at most %d MiB of memory: not within 0 and %d", spec.MaxMemoryMiB, maxMemoryMiB)
	case spec.VCPUs == 0 || spec.VCPUs > maxCPUs || spec.MaxVCPUs > maxCPUs:
		return fmt.Errorf("%d CPUs of at most %d: not within 1 and %d", spec.VCPUs, spec.MaxVCPUs, maxCPUs)
	}
	return nil
}

func checkModel(spec hypervisor.Spec) error {
	if !pluggable(spec) {
		return nil
	}
	switch spec.MemoryModel {
	case hypervisor.MemoryVirtio:
		return nil
	case "", hypervisor.MemoryDIMM:
		if spec.MemorySlots == 0 || spec.MemorySlots > maxMemorySlots {
			return fmt.Errorf("%d memory slots: not within 1 and %d", spec.MemorySlots, maxMemorySlots)
		}
		return nil
	}
	return fmt.Errorf("memory model %q: neither %q nor %q", spec.MemoryModel, hypervisor.MemoryDIMM, hypervisor.MemoryVirtio)
}

// machine disables what a pod does not use: less to probe at boot, and less
// attack surface for a hostile guest. dump-guest-core=off keeps the pod's
// memory out of core files.
func machine(spec hypervisor.Spec) string {
	parts := []string{
		cmp.Or(spec.MachineType, defaultMachine), "memory-backend=mem", "dump-guest-core=off",
		"usb=off", "sata=off", "smbus=off", "i8042=off", "vmport=off", "smm=off",
	}
	if spec.Accel != hypervisor.AccelTCG {
		parts = append(parts, "hpet=off") // timers
	}
	if spec.Accelerators != "" {
		parts = append(parts, spec.Accelerators)
	}
	return strings.Join(parts, ",")
}

// accel bounds TCG's translation buffer. QEMU's default is 1 GiB, and nothing
// is evicted until the buffer is full: code that ran once, at boot, stays. Each
// CPU gets a thread unless the spec says otherwise (threading).
func accel(spec hypervisor.Spec) string {
	words := []string{string(spec.Accel)}
	if spec.Accel != hypervisor.AccelTCG {
		return words[0]
	}
	if spec.TranslationMiB != 0 {
		words = append(words, fmt.Sprintf("tb-size=%d", spec.TranslationMiB))
	}
	if spec.Threading == hypervisor.ThreadingMulti || spec.Threading == hypervisor.ThreadingSingle {
		words = append(words, "thread="+string(spec.Threading))
	}
	return strings.Join(words, ",")
}

// timers gives a TCG guest one HPET timer per CPU. Its kernel would otherwise
// measure the local APIC's timer for 100 ms at boot (Linux,
// calibrate_APIC_clock; KVM guests have the TSC deadline timer instead), which
// nolapic_timer avoids.
//
// Kernels that boot several CPUs measure it nevertheless. With nolapic_timer a CPU
// begins with a placeholder, for which another one's tick calls it. When that tick
// comes while the CPU already has its HPET timer and is still in the mask of those
// to be called, it calls through a null pointer, and the kernel dies
// (kernel/time/tick-common.c, tick_setup_device; tick-broadcast.c, tick_do_broadcast).
// A CPU that comes later is not called: there are no periodic ticks any more.
func timers(spec hypervisor.Spec) []string {
	if spec.Accel != hypervisor.AccelTCG {
		return nil
	}
	return []string{"-global", "hpet.msi=on", "-global", "hpet.timers=8"}
}

// tcgModel is everything that TCG can emulate, except what makes Linux choose
// badly: "fast" string instructions (erms, fsrm), which TCG runs byte by byte,
// and the always running APIC timer (arat), with which Linux would not use the
// HPET.
const tcgModel = "max,-erms,-fsrm,-arat"

func cpu(spec hypervisor.Spec) string {
	model := tcgModel
	if spec.Accel == hypervisor.AccelKVM {
		model = "host"
	}
	if spec.CPUFeatures != "" {
		model += "," + spec.CPUFeatures
	}
	return model
}

// smp puts each CPU into its own socket, the unit of hot-plug. TCG has all
// CPUs from the start (SetVCPUs).
func smp(spec hypervisor.Spec) string {
	most := max(spec.MaxVCPUs, spec.VCPUs)
	boot := spec.VCPUs
	if spec.Accel == hypervisor.AccelTCG {
		boot = most
		// Before QEMU 8.1, TCG emits no memory barriers when there can be
		// only one CPU (tcg_gen_mb, CF_PARALLEL), though device back ends run
		// on other host threads: a virtqueue then stalls sooner or later.
		most = max(most, 2)
	}
	return fmt.Sprintf("%d,maxcpus=%d,sockets=%d,cores=1,threads=1", boot, most, most)
}

// memory makes room for memory that is plugged later. virtio-mem needs no
// slots.
func memory(spec hypervisor.Spec) string {
	m := fmt.Sprintf("%dM", spec.MemoryMiB)
	if !pluggable(spec) {
		return m
	}
	if spec.MemoryModel != hypervisor.MemoryVirtio {
		m += fmt.Sprintf(",slots=%d", spec.MemorySlots)
	}
	return m + fmt.Sprintf(",maxmem=%dM", spec.MaxMemoryMiB)
}

// pluggable reports whether there can be more memory than at boot.
func pluggable(spec hypervisor.Spec) bool { return spec.MaxMemoryMiB > spec.MemoryMiB }

func kernel(spec hypervisor.Spec) []string {
	args := []string{"-kernel", spec.Kernel}
	if spec.Initrd != "" {
		args = append(args, "-initrd", spec.Initrd)
	}
	if line := commandLine(spec); line != "" {
		args = append(args, "-append", line)
	}
	return args
}
