package sizing

import (
	"context"
	"errors"
	"os"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// spareShares is the CPU weight of a process that makes a template or a spare:
// half of what a pod has whose containers name none. Such a process has a nice
// value too, which counts only within its cgroup.
const spareShares = resource.DefaultShares / 2

// Confine moves this process into its own cgroup, before it starts a machine of
// that configuration for no pod yet, bounded by what the two can take: in the
// engine's cgroup that memory would be the engine's, also when the machine is a
// pod's. root is as in Options.CgroupRoot. leave moves both back and removes the
// cgroup; it may be called again. On a host where no cgroup can be made, the
// process stays where it is and leave does nothing: a pod there has a warning in
// its log.
func Confine(root string, cfg *config.Config, accel hypervisor.Accel) (leave func(context.Context) error) {
	_ = hostcgroup.SweepSpares(root)
	c, err := hostcgroup.NewForSpare(root)
	if err != nil {
		return func(context.Context) error { return nil }
	}
	leave = func(ctx context.Context) error { return errors.Join(c.Release(), c.Remove(ctx)) }
	bound, err := spareBound(cfg, accel)
	if err == nil {
		err = c.Make()
	}
	if err == nil {
		err = errors.Join(c.SetBound(bound), c.SetPlace(resource.Place{Shares: spareShares}), c.Add(os.Getpid()))
	}
	if err != nil {
		_ = leave(context.Background())
	}
	return leave
}

// spareBound is what a process can take that makes a template of a configuration
// and then has a machine of it: the template's files may be in memory too, and
// are charged to their maker.
func spareBound(cfg *config.Config, accel hypervisor.Accel) (hostcgroup.Bound, error) {
	p := &Pod{opts: Options{Config: cfg, Accel: accel}}
	var err error
	if p.machine, err = machineLimits(cfg.Hypervisor); err != nil {
		return hostcgroup.Bound{}, err
	}
	p.most.MemoryMiB = p.machine.MaxMemoryMiB
	own := p.machine.MemoryMiB
	most := 2*own + p.tablesMiB(own) + p.overheadMiB() + helpersMiB
	return hostcgroup.Bound{Memory: most << 20, Processes: maxThreads}, nil
}
