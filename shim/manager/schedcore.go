package manager

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// schedCoreEnv is set by a containerd with sched_core: the pod is to have its own domain
// of core scheduling, so that no process outside of it runs on the other threads of a
// core at the same time.
const schedCoreEnv = "SCHED_CORE"

// newCoreDomain moves the calling thread to a new domain. What it starts is in that domain
// too, with all descendants (sched_core_fork in kernel/sched/core_sched.c): the
// shim, QEMU with its vCPUs, and their helpers. runc's shim moves its process group instead.
func newCoreDomain() error {
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, unix.PR_SCHED_CORE_SCOPE_THREAD, 0)
	if err != nil {
		return fmt.Errorf("the engine wants core scheduling (sched_core), which needs Linux 5.14 with CONFIG_SCHED_CORE, and SMT: prctl(PR_SCHED_CORE): %w", err)
	}
	return nil
}

// startInDomain starts a command from a thread that enter has changed, and that ends
// then. A nil enter changes nothing.
func startInDomain(cmd *exec.Cmd, enter func() error) error {
	if enter == nil {
		return cmd.Start()
	}
	return ownthread.Run(func() error {
		if err := enter(); err != nil {
			return err
		}
		return cmd.Start()
	})
}
