package qemu

import (
	"strings"

	"github.com/katabox/katabox/hypervisor"
)

// DefaultKernelParams is the part of the guest's kernel command line that
// follows from this package's machine; callers put their own after it. Each
// word but the first three was measured to help. What looks tempting and was
// measured not to: nokaslr, mitigations=off, init_on_alloc=0, lsm=, audit=0.
func DefaultKernelParams(accel hypervisor.Accel) string {
	params := []string{
		// The console is QEMU's standard output: VM.ConsoleTail.
		"console=ttyS0",
		// The emulated port is slow.
		"quiet",
		// A dead init is a panic, a panic resets at once, a reset ends QEMU
		// (-no-reboot).
		"panic=-1",
		// One port is there; probing for more takes time.
		"8250.nr_uarts=1",
		// Self-tests of the crypto drivers: 150 to 200 ms under TCG.
		"cryptomgr.notests",
		// Waits for RCU grace periods, as in unmounting, end sooner.
		"rcupdate.rcu_expedited=1",
		// With one CPU Linux would patch its lock prefixes away, and back
		// when a second is plugged: 80 to 130 ms under TCG.
		"noreplace-smp",
	}
	if accel == hypervisor.AccelTCG {
		params = append(params,
			"nolapic_timer",  // see timers
			"no_timer_check", // the timer interrupt works
			// Else a busy host makes Linux distrust the TSC and fall back to
			// a clock that is slow to read.
			"tsc=reliable",
			// Puts numbers for names into the formats of trace events,
			// which nobody reads in a guest: 140 to 200 ms of CPU time under
			// TCG (kernel/trace/trace.c, trace_eval_init).
			"initcall_blacklist=trace_eval_init",
		)
	}
	return strings.Join(params, " ")
}
