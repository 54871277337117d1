package qemu

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// DefaultKernelParams is the part of the guest's kernel command line that
// follows from this package's machine; callers append their own. Each parameter
// but the first three was measured to help. These were measured not to:
// nokaslr, mitigations=off, init_on_alloc=0, lsm=, audit=0.
func DefaultKernelParams(accel hypervisor.Accel) string {
	params := []string{
		// The console is QEMU's standard output: VM.ConsoleTail.
		"console=ttyS0",
		// The emulated port is slow.
		"quiet",
		// A dead init causes a panic, a panic resets immediately, and a reset
		// ends QEMU (-no-reboot).
		"panic=-1",
		// There is one port; probing for more takes time.
		"8250.nr_uarts=1",
		// Self-tests of the crypto drivers: 150 to 200 ms under TCG.
		"cryptomgr.notests",
		// Shortens waits for RCU grace periods, as in unmounting.
		"rcupdate.rcu_expedited=1",
		// With one CPU Linux would patch out its lock prefixes, and patch them
		// back in when a second is plugged: 80 to 130 ms under TCG.
		"noreplace-smp",
	}
	if accel == hypervisor.AccelTCG {
		params = append(params,
			"no_timer_check", // the timer interrupt works
			// On a busy host Linux would otherwise distrust the TSC and fall
			// back to a clock that is slow to read.
			"tsc=reliable",
			// Skips replacing names by numbers in the formats of trace events,
			// which are not read in a guest: 140 to 200 ms of CPU time under
			// TCG (kernel/trace/trace.c, trace_eval_init).
			"initcall_blacklist=trace_eval_init",
		)
	}
	return strings.Join(params, " ")
}

// commandLine is the kernel's whole command line.
func commandLine(spec hypervisor.Spec) string {
	line := spec.KernelParams
	if spec.Accel == hypervisor.AccelTCG && spec.MaxVCPUs > spec.VCPUs {
		// The other CPUs exist, and wait until the guest brings them online
		// (Documentation/admin-guide/kernel-parameters.txt).
		line = strings.TrimSpace(line + fmt.Sprintf(" maxcpus=%d", spec.VCPUs))
	}
	return line
}

// maxCommandLine is how many bytes Linux takes on x86, without the NUL at the end
// (arch/x86/include/asm/setup.h, COMMAND_LINE_SIZE).
const maxCommandLine = 2047

// checkCommandLine refuses a command line with which the guest's kernel would not
// start, or would lack what is at its end.
func checkCommandLine(line string) error {
	if len(line) > maxCommandLine {
		return fmt.Errorf("the guest kernel's command line has %d bytes, want at most %d: the machine's own parameters and kernel_params: %w",
			len(line), maxCommandLine, errdefs.ErrInvalidArgument)
	}
	return nil
}
