package qemu

import (
	"strings"

	"github.com/katabox/katabox/hypervisor"
)

// DefaultKernelParams is the part of the guest's kernel command line that
// follows from this package's machine. Callers add their own after it.
func DefaultKernelParams(accel hypervisor.Accel) string {
	params := []string{
		// The console is QEMU's standard output: VM.ConsoleTail.
		"console=ttyS0",
		// The emulated port is slow: 10 % of a boot is printing.
		"quiet",
		// A dead init is a panic, a panic resets at once, a reset ends QEMU
		// (-no-reboot).
		"panic=-1",
		"8250.nr_uarts=1",
		"cryptomgr.notests",
		"rcupdate.rcu_expedited=1",
	}
	if accel == hypervisor.AccelTCG {
		params = append(params, "tsc=reliable", "no_timer_check", "nokaslr", "mitigations=off")
	}
	return strings.Join(params, " ")
}
