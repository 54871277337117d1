package guest

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/modules"
	"github.com/katabox/katabox/agent/network"
	"github.com/katabox/katabox/internal/spans"
)

// maxFiles is the agent's RLIMIT_NOFILE: three streams and a few pipes per
// process, with room for thousands of processes.
const maxFiles = 1 << 20

// Boot makes the machine ready to run containers. It must be called once, by
// PID 1, before any other thread relies on the root directory. It returns the
// modules that the image offers. rec may be nil.
func Boot(ctx context.Context, rec *spans.Recorder) (*Modules, error) {
	begun := time.Now()
	if err := mountAll(); err != nil {
		return nil, err
	}
	mounted := time.Now()
	limits := unix.Rlimit{Cur: maxFiles, Max: maxFiles}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limits); err != nil {
		return nil, fmt.Errorf("raise open file limit: %w", err)
	}
	if err := removeLimits(); err != nil {
		return nil, err
	}
	tune(ctx, "/proc")
	offered, err := ReadModules(modules.ListFile)
	if err != nil {
		return nil, err
	}
	if err := offered.LoadBoot(); err != nil {
		return nil, err
	}
	if err := answerKernel(modprobeFile); err != nil {
		return nil, err
	}
	if err := network.LoopbackUp(); err != nil {
		return nil, err
	}
	enableHotplugMemory(ctx)
	done := time.Now()
	rec.Add("", "mounts", begun, mounted)
	rec.Add("", "modules", mounted, done)
	log.G(ctx).WithFields(bootTimes(mounted.Sub(begun), done.Sub(mounted))).Info("guest booted")
	return offered, nil
}

// tunings set the kernel's limits and other sysctls. proc is where procfs is mounted. The
// guest works without any of them; the warning says what it then lacks.
var tunings = []struct {
	set     func(proc string) error
	warning string
}{
	{allowPIDs, "the guest has as many process ids as its kernel begins with"},
	{allowOpenFiles, "containers have no more open files than the guest's kernel begins with"},
	{reserveThreads, "no threads are reserved for the agent"},
	{removeSharedLimits, "a container can use up what the agent needs as the same user"},
	{protectFiles, "users' files in directories that all may write to are not protected from each other"},
	{allowOvercommit, "containers cannot reserve more memory than the guest has, or the agent has none reserved"},
}

func tune(ctx context.Context, proc string) {
	for _, t := range tunings {
		if err := t.set(proc); err != nil {
			log.G(ctx).WithError(err).Warn(t.warning)
		}
	}
}

// bootTimes returns the fields of the log with the parts of Boot, in milliseconds.
func bootTimes(mounts, modules time.Duration) log.Fields {
	return log.Fields{"t_mounts": milliseconds(mounts), "t_modules": milliseconds(modules)}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

// enableHotplugMemory lets the kernel bring added memory online by itself. A
// kernel without memory hotplug has no such file.
func enableHotplugMemory(ctx context.Context) {
	const file = "/sys/devices/system/memory/auto_online_blocks"
	if err := writeFile(file, "online"); err != nil {
		log.G(ctx).WithError(err).Debug("added memory will not come online by itself")
	}
}
