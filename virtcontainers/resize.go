package virtcontainers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/resource"
)

// shrinkWait bounds how long a machine is waited for that is to become
// smaller: a container that is to be created waits for it. What the guest has
// not given back by then stays until the next time.
const shrinkWait = 5 * time.Second

// sizing is how large the machine is while it runs, and what for.
type sizing struct {
	// machine is set before the boot and not changed, and so is hugePageMiB,
	// the size of the huge pages that the memory is made of; 0 is none.
	machine     resource.Machine
	hugePageMiB uint64
	// token serializes changes of the machine's size. It is a semaphore: a lock may not
	// be held across calls to the machine and the guest.
	token chan struct{}
	// smaller has an entry when containers may need less than before.
	smaller chan struct{}

	// The token guards these, and Container.allowed.
	vcpus     uint32
	memoryMiB uint64
	// unused: the guest may not use all of it yet.
	unused bool
	// placed is the place that the pod's cgroup was given last, pinned what
	// was said last of where vCPUs run.
	placed, pinned string
}

func newSizing() sizing {
	return sizing{token: make(chan struct{}, 1), smaller: make(chan struct{}, 1)}
}

// hold takes the token; who has it must release it.
func (s *Sandbox) hold(ctx context.Context) error {
	select {
	case s.sizing.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a concurrent resize: %w", context.Cause(ctx))
	}
}

func (s *Sandbox) release() { <-s.sizing.token }

// allowance is what a container is allowed to use. The zero value is that of
// one that is being created and was not admitted yet: it does not count.
type allowance struct {
	admitted bool
	// limits are those of its cgroup that matter here: for the machine's size,
	// of which need is its part, and for its place on the host.
	limits *specs.LinuxResources
	need   resource.Need
	place  resource.Place
}

func allowanceOf(limits *specs.LinuxResources) (allowance, error) {
	need, err := resource.OfContainer(limits)
	if err != nil {
		return allowance{}, err
	}
	place, err := resource.PlaceOf(limits)
	return allowance{admitted: true, limits: limits, need: need, place: place}, err
}

// admit makes the machine large enough for one more container, and gives the
// pod the container's CPUs on the host. On an error it is the caller's to take
// the container away, and the pod becomes as small as it can again.
func (s *Sandbox) admit(ctx context.Context, c *Container, limits *specs.LinuxResources) error {
	allowed, err := allowanceOf(limits)
	if err != nil {
		return err
	}
	if err := s.hold(ctx); err != nil {
		return err
	}
	defer s.release()
	c.allowed = allowed
	return s.makeRoom(ctx)
}

// makeRoom makes the machine large enough for its containers, unless it keeps
// its size, and then gives the pod its place on the host.
func (s *Sandbox) makeRoom(ctx context.Context) error {
	if !s.static() {
		if err := s.grow(ctx); err != nil {
			return err
		}
	}
	return s.placePod(ctx)
}

// updateLimits makes room for a container's new limits, then has apply set
// them, and lets the pod become smaller where they are lower. On an error all
// is as it was, or is about to be.
func (s *Sandbox) updateLimits(ctx context.Context, c *Container, encoded []byte, apply func() error) error {
	var update specs.LinuxResources
	if err := json.Unmarshal(encoded, &update); err != nil {
		return apply() // the guest says what is wrong with it
	}
	if err := s.hold(ctx); err != nil {
		return err
	}
	defer s.release()
	defer s.mayShrink()
	allowed, err := allowanceOf(resource.Updated(c.allowed.limits, &update))
	if err != nil {
		return err
	}
	before := c.allowed
	c.allowed = allowed
	if err = s.makeRoom(ctx); err == nil {
		err = apply()
	}
	if err != nil {
		c.allowed = before
		return err
	}
	c.showLimits(ctx, &update)
	return nil
}

// living are the containers that were admitted and have not ended. It needs the
// token.
func (s *Sandbox) living() []*Container {
	s.mu.Lock()
	containers := slices.Collect(maps.Values(s.containers))
	s.mu.Unlock()
	return slices.DeleteFunc(containers, func(c *Container) bool {
		state := c.init.Info().State
		return !c.allowed.admitted || state == Stopped || state == Deleted
	})
}

// wanted is how large the machine should be for the containers that have not
// ended. A machine that cannot be changed is as large as it can be.
func (s *Sandbox) wanted() resource.Size {
	var needs []resource.Need
	for _, c := range s.living() {
		needs = append(needs, c.allowed.need)
	}
	machine := s.sizing.machine
	if _, ok := s.vm.(hypervisor.CPUPlugger); !ok {
		machine.MaxVCPUs = s.size.VCPUs
	}
	if _, ok := s.vm.(hypervisor.MemoryPlugger); !ok {
		machine.MaxMemoryMiB = s.size.MemoryMiB
	}
	return machine.Size(needs...)
}

// grow makes the machine as large as the containers need it, if it is not.
func (s *Sandbox) grow(ctx context.Context) error {
	want := s.wanted()
	warnOf(ctx, want)
	hadCPUs, hadMiB := s.sizing.vcpus, s.sizing.memoryMiB
	if want.VCPUs <= hadCPUs && want.MemoryMiB <= hadMiB && !s.sizing.unused {
		return nil
	}
	s.sizing.unused = true
	want.VCPUs, want.MemoryMiB = max(want.VCPUs, hadCPUs), max(want.MemoryMiB, hadMiB)
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	start := time.Now()
	err := s.growMemory(ctx, want.MemoryMiB)
	if err == nil {
		err = s.growCPUs(ctx, want.VCPUs)
	}
	if err == nil {
		err = s.useAll(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("grow the machine from %d vCPUs and %d MiB to %d and %d: %w", hadCPUs, hadMiB, want.VCPUs, want.MemoryMiB, err)
	}
	s.sizing.unused = false
	log.G(ctx).WithFields(log.Fields{
		"vcpus": s.sizing.vcpus, "memory_mib": s.sizing.memoryMiB, "had_vcpus": hadCPUs, "had_memory_mib": hadMiB,
		"t_grow": milliseconds(time.Since(start)),
	}).Info("machine grown")
	return nil
}

func (s *Sandbox) growMemory(ctx context.Context, want uint64) error {
	if want <= s.sizing.memoryMiB {
		return nil
	}
	if s.cgroup != nil {
		if err := s.orWithoutCgroup(ctx, s.chargeVM(ctx, want)); err != nil {
			return err
		}
	}
	loaded := make(chan struct{})
	close(loaded)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	if s.opts.Config.Hypervisor.VirtioMem {
		// The guest takes the memory in when it has the driver, and the agent
		// loads that when it looks for memory and sees the device.
		loaded = make(chan struct{})
		go func() {
			defer close(loaded)
			if _, err := s.client.SetResources(asking, 0, want); err != nil {
				log.G(ctx).WithError(err).Debug("memory is not there yet")
			}
		}()
	}
	now, err := s.vm.(hypervisor.MemoryPlugger).SetMemoryMiB(ctx, want) //nolint:forcetypeassert // wanted has looked
	if now > 0 {
		s.sizing.memoryMiB = now
	}
	if err == nil && now < want {
		err = fmt.Errorf("there are %d MiB of memory: %w", now, errdefs.ErrResourceExhausted)
	}
	if err != nil {
		stop() // the agent waits for what will not come
	}
	<-loaded
	return err
}

func (s *Sandbox) growCPUs(ctx context.Context, want uint32) error {
	if want <= s.sizing.vcpus {
		return nil
	}
	now, err := s.vm.(hypervisor.CPUPlugger).SetVCPUs(ctx, want) //nolint:forcetypeassert // wanted has looked
	if now > 0 {
		s.sizing.vcpus = now
	}
	if err == nil && now < want {
		err = fmt.Errorf("there are %d vCPUs: %w", now, errdefs.ErrResourceExhausted)
	}
	if err == nil && s.cgroup != nil {
		err = s.orWithoutCgroup(ctx, s.chargeVM(ctx, s.sizing.memoryMiB))
	}
	return err
}

// useAll has the guest use what the machine has.
func (s *Sandbox) useAll(ctx context.Context, want resource.Size) error {
	used, err := s.client.SetResources(ctx, want.VCPUs, want.MemoryMiB)
	if err != nil {
		return err
	}
	if used.GetCpus() < want.VCPUs || used.GetMemoryMib() < want.MemoryMiB {
		return fmt.Errorf("the guest uses %d CPUs and %d MiB of memory: %w", used.GetCpus(), used.GetMemoryMib(), errdefs.ErrResourceExhausted)
	}
	return nil
}

// mayShrink is called when containers may need less than before.
func (s *Sandbox) mayShrink() {
	select {
	case s.sizing.smaller <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// watchSize makes the pod smaller, when that may be, while the sandbox lives.
func (s *Sandbox) watchSize() {
	for {
		select {
		case <-s.sizing.smaller:
			if err := s.follow(s.lifeCtx); err != nil && s.lifeCtx.Err() == nil && !s.gone() {
				log.G(s.lifeCtx).WithError(err).Warn("the pod cannot be made smaller")
			}
		case <-s.lifeCtx.Done():
			return
		}
	}
}

// follow makes the machine as small as the containers let it, unless it keeps
// its size, and then takes from the pod's place on the host what none has any
// more.
func (s *Sandbox) follow(ctx context.Context) error {
	if err := s.hold(ctx); err != nil {
		return err
	}
	defer s.release()
	if s.isStopping() {
		return nil
	}
	var err error
	if !s.static() {
		err = s.shrink(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, shrinkWait)
	defer cancel()
	return errors.Join(err, s.placePod(ctx))
}

// shrink makes the machine as small as the containers let it, as far as it can
// be made smaller.
func (s *Sandbox) shrink(ctx context.Context) error {
	want, hadCPUs, hadMiB := s.wanted(), s.sizing.vcpus, s.sizing.memoryMiB
	if want.VCPUs >= hadCPUs && want.MemoryMiB >= hadMiB {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shrinkWait)
	defer cancel()
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	start := time.Now()
	err := errors.Join(s.shrinkCPUs(ctx, want.VCPUs), s.shrinkMemory(ctx, want.MemoryMiB))
	log.G(ctx).WithFields(log.Fields{
		"vcpus": s.sizing.vcpus, "memory_mib": s.sizing.memoryMiB, "had_vcpus": hadCPUs, "had_memory_mib": hadMiB,
		"wanted_vcpus": min(want.VCPUs, hadCPUs), "wanted_memory_mib": min(want.MemoryMiB, hadMiB),
		"t_shrink": milliseconds(time.Since(start)),
	}).Info(map[bool]string{true: "machine shrunk", false: "machine cannot shrink that far"}[s.fits(want)])
	return err
}

// fits reports whether the machine is no larger than wanted.
func (s *Sandbox) fits(want resource.Size) bool {
	return s.sizing.vcpus <= want.VCPUs && s.sizing.memoryMiB <= want.MemoryMiB
}

func (s *Sandbox) shrinkCPUs(ctx context.Context, want uint32) error {
	if want >= s.sizing.vcpus {
		return nil
	}
	now, err := s.vm.(hypervisor.CPUPlugger).SetVCPUs(ctx, want) //nolint:forcetypeassert // it has grown
	if now > 0 {
		s.sizing.vcpus = now
	}
	return err
}

// shrinkMemory takes memory away if it is not in modules: they stay.
func (s *Sandbox) shrinkMemory(ctx context.Context, want uint64) error {
	if want >= s.sizing.memoryMiB || !s.opts.Config.Hypervisor.VirtioMem {
		return nil
	}
	now, err := s.vm.(hypervisor.MemoryPlugger).SetMemoryMiB(ctx, want) //nolint:forcetypeassert // it has grown
	if now > 0 {
		s.sizing.memoryMiB = now
	}
	return err
}
