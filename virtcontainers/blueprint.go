package virtcontainers

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// extraMonitorSocket is in the sandbox's directory, and is removed with it.
// The name is short: with an ID of 64 bytes the path just fits into a
// socket address (unix(7)).
const extraMonitorSocket = "qemu.sock"

// blueprint says what a machine is to be. It makes nothing on the host: its methods only
// read there.
type blueprint struct {
	// id is the pod's, or the machine's if it has no pod.
	id       string
	platform Platform
	config   *config.Config
	size     *sizing.Start
	// namespace is the path of the network namespace in which the VMM runs. If it is
	// empty, the VMM gets a new one.
	namespace string
}

// newBlueprint returns that of a machine without a pod, which has the
// configuration's size.
func newBlueprint(ctx context.Context, platform Platform, id string, cfg *config.Config) (*blueprint, error) {
	size, err := sizing.NewStart(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &blueprint{id: id, platform: platform, config: cfg, size: size}, nil
}

// plain returns the blueprint of the machine that the configuration describes without
// the pod's annotations: that of templates and spares.
func (b *blueprint) plain(ctx context.Context) (*blueprint, error) {
	return newBlueprint(ctx, b.platform, b.id, b.config.WithoutAnnotations())
}

// spec returns the bare machine that the configuration describes, confined by a jail
// unless that is nil.
func (b *blueprint) spec(j *jail) hypervisor.Spec {
	h := b.config.Hypervisor
	spec := hypervisor.Spec{
		ID: b.id, Path: h.Path, MachineType: h.MachineType, Accelerators: h.MachineAccelerators,
		Accel: b.platform.Accel, TranslationMiB: h.TranslationMiB, Threading: hypervisor.Threading(h.Threading), CPUFeatures: h.CPUFeatures,
		Kernel: h.Kernel, Initrd: h.Initrd, Firmware: h.Firmware, Seccomp: h.Seccomp,
		KernelParams: b.kernelParams(), NetworkNamespace: b.namespace,
		DiskThreads: h.BlockThreads(),
		Memory:      hypervisor.MemoryBacking{Prealloc: h.Memory.Prealloc, Dir: h.Memory.Dir},
	}
	if h.ExtraMonitor != "" {
		spec.ExtraMonitor = hypervisor.ExtraMonitor{
			Language: hypervisor.MonitorLanguage(h.ExtraMonitor),
			Path:     filepath.Join(b.platform.PodDir(b.id), extraMonitorSocket),
		}
	}
	if j != nil {
		spec.Jail = &hypervisor.Jail{UID: j.uid(), GID: j.uid()}
		spec.Memory.Dir = j.memoryDir
	}
	if h.DumpDir != "" {
		spec.PanicDump = hypervisor.PanicDump{Dir: filepath.Join(h.DumpDir, b.id), Paging: h.DumpPaging}
	}
	b.size.Set(&spec)
	return spec
}

func (b *blueprint) kernelParams() string {
	params := []string{b.platform.KernelParams}
	if b.config.Hypervisor.Debug {
		params = append(params, "loglevel=7") // overrides an earlier "quiet"
	}
	if b.config.Agent.Debug {
		params = append(params, "agent.log=debug")
	}
	if b.config.Agent.DebugConsole {
		params = append(params, "agent.debug_console")
	}
	return strings.TrimSpace(strings.Join(append(params, b.config.Hypervisor.KernelParams), " "))
}

// guestModules returns the modules that the guest loads first: those of the
// configuration and those that the machine's devices need from the start.
func (b *blueprint) guestModules() []string {
	if b.config.Hypervisor.DumpDir == "" {
		return b.config.Agent.KernelModules
	}
	return slices.Concat(b.config.Agent.KernelModules, []string{"pvpanic_pci"})
}

// fileOptions describe the files of a machine without a pod.
func (b *blueprint) fileOptions() guestfs.Options {
	return guestfs.Options{ID: b.id, Scratch: b.platform.StateDir(), Config: b.config}
}

// templates returns the store of the configuration's templates.
func (b *blueprint) templates() factory.Store {
	return factory.Store{Dir: b.config.Factory.TemplatePath}
}

// bootedTimeout is how long a guest that has booted before may take to answer.
func (b *blueprint) bootedTimeout() time.Duration {
	return min(b.config.Agent.DialTimeout, templateDialTimeout)
}
