package container

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/log"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Update changes the resource limits that res sets. The other limits and the
// device rules stay as they are. A limit of memory that is less than what the
// container uses is refused, with ErrFailedPrecondition. If ctx ends meanwhile, the
// limits are those of before: for the host the update has failed.
func (c *Container) Update(ctx context.Context, res *specs.LinuxResources) error {
	adjustResources(res)
	sayLost(c.id, fitResources(res, parentHas))
	res.Devices = nil
	if !c.init.isAlive() {
		return c.precondition("update", libcontainer.ErrNotRunning, nil)
	}
	// This may last, and other changes do not wait for it.
	if m := res.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		if err := fitMemory(ctx, c.cgroups.Path(""), *m.Limit); err != nil {
			if !c.init.isAlive() { // its cgroup may be gone
				return c.precondition("update", libcontainer.ErrNotRunning, nil)
			}
			return fmt.Errorf("update container %s: %w", c.id, err)
		}
	}
	c.cgroupMu.Lock()
	defer c.cgroupMu.Unlock()
	if !c.init.isAlive() {
		return c.precondition("update", libcontainer.ErrNotRunning, nil)
	}
	merged, err := updated(c.resources, res)
	if err == nil {
		err = c.setLimits(ctx, merged)
	}
	if err != nil {
		return fmt.Errorf("update container %s: %w", c.id, err)
	}
	before := c.resources
	c.resources = merged
	c.fitProtection(before, merged)
	return nil
}

// setLimits sets all limits. If it fails or ctx ends, those in force are the ones of
// before. cgroupMu must be held.
func (c *Container) setLimits(ctx context.Context, limits *cgroups.Resources) error {
	if err := lateUpdate(ctx); err != nil {
		return err
	}
	dir := c.cgroups.Path("")
	before, err := saveLimits(dir, limits)
	if err != nil {
		return err
	}
	err = c.cgroups.Set(limits)
	if err == nil {
		err = lateUpdate(ctx)
	}
	if err == nil {
		return nil
	}
	undo := restoreLimits(before, func(l savedLimit) error { return l.restore(dir) })
	if undo != nil {
		log.L.WithField("container", c.id).Warnf("a failed update of its limits cannot be undone: %v", undo)
	}
	return err
}

// lateUpdate is the error of an update for which the host does not wait any more.
func lateUpdate(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the limits were to be set too late for the host: %w", context.Cause(ctx))
}

// updated returns a container's limits after an update; old is not changed.
func updated(old *cgroups.Resources, res *specs.LinuxResources) (*cgroups.Resources, error) {
	change, err := specconv.CreateCgroupConfig(&specconv.CreateOpts{
		Spec: &specs.Spec{Linux: &specs.Linux{Resources: res}},
	}, nil)
	if err != nil {
		return nil, err
	}
	merged := *old
	mergeResources(&merged, change.Resources)
	if res.Memory != nil {
		mergeSwap(&merged, res.Memory)
	}
	merged.Freezer = cgroups.Undefined // Pause and Resume write it.
	weightless(&merged)
	return &merged, nil
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
	to.MemoryCheckBeforeUpdate = from.MemoryCheckBeforeUpdate // of this update alone
	set(&to.BlkioWeight, from.BlkioWeight)
	to.HugetlbLimit = mergeHugepages(to.HugetlbLimit, from.HugetlbLimit)
	to.Unified = mergeUnified(to.Unified, from)
}

// mergeSwap forgets a swap limit as runc does (update.go): when an update names 0, and
// when it lifts the limit of memory and names none. The limit includes the memory's,
// so what is remembered refuses a larger one of memory.
func mergeSwap(to *cgroups.Resources, m *specs.LinuxMemory) {
	lifted := m.Limit != nil && *m.Limit == -1
	if m.Swap == nil && lifted || m.Swap != nil && *m.Swap == 0 {
		to.MemorySwap = 0
	}
}

// mergeHugepages adds limits to those for other page sizes.
func mergeHugepages(to, from []*cgroups.HugepageLimit) []*cgroups.HugepageLimit {
	merged := slices.DeleteFunc(slices.Clone(to), func(old *cgroups.HugepageLimit) bool {
		return slices.ContainsFunc(from, func(l *cgroups.HugepageLimit) bool { return l.Pagesize == old.Pagesize })
	})
	return append(merged, from...)
}

// mergeUnified adds limits that a change sets by file name. An earlier one is
// removed when a field now sets the same limit: file names are written after
// fields and would win.
func mergeUnified(to map[string]string, from *cgroups.Resources) map[string]string {
	merged := maps.Clone(to)
	for _, l := range limitFiles {
		if l.field != nil && l.field(from) {
			delete(merged, l.file)
		}
	}
	if merged == nil {
		return from.Unified
	}
	maps.Copy(merged, from.Unified)
	return merged
}

// set copies value unless it is the zero value, which stands for "not set".
func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}
