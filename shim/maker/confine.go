package maker

import (
	"context"
	"errors"
	"os"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// shares is the CPU weight of such a process: half of what a pod has whose
// containers name none. The nice value counts only within its cgroup.
const shares = resource.DefaultShares / 2

// Confine moves this process, before it starts a machine, into its own cgroup,
// bounded by what it and a machine of the configuration can take: in the engine's
// cgroup that memory would be the engine's, also when the machine is a pod's.
// leave moves the process and its machine back, and removes the cgroup; it may be
// called again. On a host where no cgroup can be made, the process stays where it
// is and leave does nothing: a pod there has a warning in its log.
func Confine(platform virtcontainers.Platform, cfg *config.Config) (leave func(context.Context) error) {
	_ = hostcgroup.SweepSpares(platform.CgroupRoot)
	c, err := hostcgroup.NewForSpare(platform.CgroupRoot)
	if err != nil {
		return func(context.Context) error { return nil }
	}
	leave = func(ctx context.Context) error { return errors.Join(c.Release(), c.Remove(ctx)) }
	bound, err := sizing.SpareBound(cfg, platform.Accel)
	if err == nil {
		err = c.Make()
	}
	if err == nil {
		err = errors.Join(c.SetBound(bound), c.SetPlace(resource.Place{Shares: shares}), c.Add(os.Getpid()))
	}
	if err != nil {
		_ = leave(context.Background())
	}
	return leave
}
