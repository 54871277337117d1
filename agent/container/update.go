package container

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Update changes the container's resource limits: those that res sets. What
// it leaves out stays as it is.
func (c *Container) Update(res *specs.LinuxResources) error {
	adjustResources(res)
	change, err := specconv.CreateCgroupConfig(&specconv.CreateOpts{
		Spec: &specs.Spec{Linux: &specs.Linux{Resources: res}},
	}, nil)
	if err != nil {
		return fmt.Errorf("update container %s: %w", c.id, err)
	}
	c.updateMu.Lock()
	defer c.updateMu.Unlock()
	config := c.lib.Config()
	cgroup, merged := *config.Cgroups, *config.Cgroups.Resources
	mergeResources(&merged, change.Resources)
	cgroup.Resources = &merged
	config.Cgroups = &cgroup
	if err := c.lib.Set(config); err != nil {
		return fmt.Errorf("update container %s: %w", c.id, precondition(err))
	}
	return nil
}

// mergeResources sets in to what from has set.
func mergeResources(to, from *cgroups.Resources) {
	set(&to.Memory, from.Memory)
	set(&to.MemoryReservation, from.MemoryReservation)
	set(&to.MemorySwap, from.MemorySwap)
	set(&to.CpuShares, from.CpuShares)
	set(&to.CpuWeight, from.CpuWeight)
	set(&to.CpuQuota, from.CpuQuota)
	set(&to.CpuPeriod, from.CpuPeriod)
	set(&to.CpuBurst, from.CpuBurst)
	set(&to.CPUIdle, from.CPUIdle)
	set(&to.PidsLimit, from.PidsLimit)
	set(&to.MemoryCheckBeforeUpdate, from.MemoryCheckBeforeUpdate)
	if len(from.Unified) > 0 {
		to.Unified = from.Unified
	}
}

// set copies value unless it is the zero value, which stands for "not set".
func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}
