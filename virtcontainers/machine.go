package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

const (
	rngID     = "rng"
	balloonID = "balloon"
	// extraMonitorSocket is in the sandbox's directory, and is removed with it.
	// The name is short: with an ID of 64 bytes the path just fits into a
	// socket address (unix(7)).
	extraMonitorSocket = "qemu.sock"
)

// spec returns the bare machine that the configuration describes.
func (s *Sandbox) spec() hypervisor.Spec {
	h := s.opts.Config.Hypervisor
	spec := hypervisor.Spec{
		ID: s.ID, Path: h.Path, MachineType: h.MachineType, Accelerators: h.MachineAccelerators,
		Accel: s.platform.Accel, TranslationMiB: h.TranslationMiB, Threading: hypervisor.Threading(h.Threading), CPUFeatures: h.CPUFeatures,
		Kernel: h.Kernel, Initrd: h.Initrd, Firmware: h.Firmware, Seccomp: h.Seccomp,
		KernelParams: s.kernelParams(), NetworkNamespace: s.network.EngineNamespace(),
		DiskThreads: h.BlockThreads(),
		Memory:      hypervisor.MemoryBacking{Prealloc: h.Memory.Prealloc, Dir: h.Memory.Dir},
	}
	if h.ExtraMonitor != "" {
		spec.ExtraMonitor = hypervisor.ExtraMonitor{
			Language: hypervisor.MonitorLanguage(h.ExtraMonitor),
			Path:     filepath.Join(s.platform.PodDir(s.ID), extraMonitorSocket),
		}
	}
	if s.jail != nil {
		spec.Jail = &hypervisor.Jail{UID: s.jail.uid(), GID: s.jail.uid()}
		spec.Memory.Dir = s.jail.memoryDir
	}
	if h.DumpDir != "" {
		spec.PanicDump = hypervisor.PanicDump{Dir: filepath.Join(h.DumpDir, s.ID), Paging: h.DumpPaging}
	}
	s.sizing.Set(&spec)
	return spec
}

// guestModules returns the modules that the guest loads first: those of the
// configuration and those that the machine's devices need from the start.
func (s *Sandbox) guestModules() []string {
	c := s.opts.Config
	if c.Hypervisor.DumpDir == "" {
		return c.Agent.KernelModules
	}
	return slices.Concat(c.Agent.KernelModules, []string{"pvpanic_pci"})
}

// warnOfMonitor logs a warning that there is an extra monitor, and where.
func warnOfMonitor(ctx context.Context, m hypervisor.ExtraMonitor) {
	if m.Path != "" {
		log.G(ctx).WithField("socket", m.Path).Warnf("an extra monitor (%s) commands this sandbox's machine", m.Language)
	}
}

func (s *Sandbox) kernelParams() string {
	params := []string{s.platform.KernelParams}
	if s.opts.Config.Hypervisor.Debug {
		params = append(params, "loglevel=7") // overrides an earlier "quiet"
	}
	if s.opts.Config.Agent.Debug {
		params = append(params, "agent.log=debug")
	}
	if s.opts.Config.Agent.DebugConsole {
		params = append(params, "agent.debug_console")
	}
	return strings.TrimSpace(strings.Join(append(params, s.opts.Config.Hypervisor.KernelParams), " "))
}

// attachDevices attaches the devices that every machine has. Measured without
// KVM: QEMU takes 2 to 3 ms to attach one, and the guest's kernel needs 1 %
// more instructions to boot (some 10 ms). The guest's drivers are loaded when
// the first container runs (the agent's Resources.LoadLateDrivers).
func (s *Sandbox) attachDevices(ctx context.Context) error {
	h := s.opts.Config.Hypervisor
	if h.EntropySource != "" && s.template.key == "" { // otherwise it came with the template
		if err := s.attachRNG(ctx, h.EntropySource); err != nil {
			return err
		}
	}
	if h.Memory.Reclaim {
		return s.vm.Attach(ctx, hypervisor.Balloon{ID: balloonID})
	}
	return nil
}

// attachRNG attaches the random number generator, which reads a file of the
// host.
func (s *Sandbox) attachRNG(ctx context.Context, source string) error {
	rng, err := openRNG(source)
	if err != nil {
		return err
	}
	defer rng.File.Close()
	return s.vm.Attach(ctx, rng)
}

// openRNG opens the file, which the caller closes, without blocking: it may by
// mistake be a FIFO, from which a guest would get nothing, or data meant for
// another reader.
func openRNG(source string) (hypervisor.RNG, error) {
	const key = "hypervisor.qemu.entropy_source"
	file, err := os.OpenFile(source, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return hypervisor.RNG{}, fmt.Errorf("%s: %w", key, err)
	}
	info, err := file.Stat()
	if err == nil {
		if mode := info.Mode(); !mode.IsRegular() && mode&os.ModeCharDevice == 0 {
			err = fmt.Errorf("%s is neither a character device nor a regular file: %w", source, errdefs.ErrInvalidArgument)
		}
	}
	if err != nil {
		return hypervisor.RNG{}, fmt.Errorf("%s: %w", key, errors.Join(err, file.Close()))
	}
	return hypervisor.RNG{ID: rngID, File: file}, nil
}
