package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// stage is how far a guest has come on the way to its pod.
type stage int

const (
	bare stage = iota
	preparing
	// prepared guests have no pod, but may have containers.
	prepared
	settingUp
	ready
)

// String names what a guest is, or has failed to become.
func (s stage) String() string {
	return [...]string{"bare", "being prepared", "prepared", "being set up", "set up"}[s]
}

// prepareGuest lets containers come before there is a pod. After a failure the
// host discards the machine.
func (p *Pod) prepareGuest(ctx context.Context, req *api.PrepareRequest) error {
	if err := p.enter(preparing, bare, prepared); err != nil {
		return fmt.Errorf("prepare guest: %w", err)
	}
	if err := reseed(req.GetEntropy()); err != nil {
		return fmt.Errorf("prepare guest: %w", err)
	}
	if err := p.disks.Mount(ctx, req.GetStorages()); err != nil {
		return err
	}
	if err := p.prepareDrivers(ctx, req.GetIsTemplate()); err != nil {
		return fmt.Errorf("prepare guest: %w", err)
	}
	if err := buildDecoders(); err != nil {
		return fmt.Errorf("prepare guest: %w", err)
	}
	return p.enter(prepared, preparing)
}

// prepareDrivers loads the drivers that a pod loads when its first container runs.
// In a template their devices do not get them yet.
func (p *Pod) prepareDrivers(ctx context.Context, isTemplate bool) error {
	if isTemplate {
		return p.machine.PreloadLateDrivers()
	}
	p.late.Do(func() { p.loadLateDrivers(ctx) })
	return nil
}

// setup gives the guest its pod. A failed setup is not tried again: the host
// discards the machine.
func (p *Pod) setup(ctx context.Context, req *api.SetupSandboxRequest) error {
	if err := p.enter(settingUp, bare, prepared); err != nil {
		return fmt.Errorf("set up sandbox: %w", err)
	}
	if err := p.forgetEarlier(); err != nil {
		return fmt.Errorf("set up sandbox: %w", err)
	}
	if err := refresh(req); err != nil {
		return fmt.Errorf("set up sandbox: %w", err)
	}
	for _, module := range req.GetKernelModules() {
		if err := p.config.Mounter.Modules.Demand(module); err != nil {
			return err
		}
	}
	if err := p.setHooks(req.GetGuestHookPath()); err != nil {
		return err
	}
	if err := p.disks.Mount(ctx, req.GetStorages()); err != nil {
		return err
	}
	log.G(ctx).WithField("sandbox", req.GetSandboxId()).Info("sandbox set up")
	return p.enter(ready, settingUp)
}

// enter moves the guest on to a stage from one of others.
func (p *Pod) enter(to stage, from ...stage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(from, p.stage) {
		return fmt.Errorf("the guest is %s: %w", p.stage, errdefs.ErrFailedPrecondition)
	}
	p.stage = to
	return nil
}

// checkOpen fails if no container may come.
func (p *Pod) checkOpen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checkOpenLocked()
}

// checkOpenLocked is checkOpen for callers that hold mu.
func (p *Pod) checkOpenLocked() error {
	if p.stage != prepared && p.stage != ready {
		return fmt.Errorf("the sandbox is not set up: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// hasPod reports whether the guest has its pod.
func (p *Pod) hasPod() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage == ready
}

// forgetEarlier drops what the pod must not see of the containers that were there
// before it. They must be gone.
func (p *Pod) forgetEarlier() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.tasks); n > 0 {
		return fmt.Errorf("there are %d containers: %w", n, errdefs.ErrFailedPrecondition)
	}
	p.hostname = ""
	p.events.clear()
	p.config.Spans.DropContainers()
	return nil
}

// hostState is the state that a guest cannot know when its machine starts, or continues
// as a copy of a saved one.
type hostState interface {
	GetEntropy() []byte
	GetHostTime() *timestamppb.Timestamp
}

var (
	_ hostState = (*api.SetupSandboxRequest)(nil)
	_ hostState = (*api.RejoinRequest)(nil)
)

// refresh reseeds the guest's random number generator and sets its clock, as far
// as the host has sent what is needed for it.
func refresh(host hostState) error {
	if err := reseed(host.GetEntropy()); err != nil {
		return err
	}
	if t := host.GetHostTime(); t.IsValid() {
		return guest.SetClock(t.AsTime())
	}
	return nil
}

func reseed(entropy []byte) error {
	switch len(entropy) {
	case 0:
		return nil
	case api.EntropyBytes:
		return guest.Reseed(entropy)
	}
	return fmt.Errorf("%d bytes of entropy, want %d: %w", len(entropy), api.EntropyBytes, errdefs.ErrInvalidArgument)
}

// setHooks makes the guest's hooks run for every container; an empty path means
// no hooks.
func (p *Pod) setHooks(dir string) error {
	if dir == "" {
		return nil
	}
	return p.config.Runtime.SetHooks(dir)
}
