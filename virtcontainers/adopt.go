package virtcontainers

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// considerSpare decides whether the sandbox adopts the platform's spare machine.
func (s *Sandbox) considerSpare(ctx context.Context) {
	p := s.platform.Spare
	if p == nil {
		return
	}
	if err := s.fits(p); err != nil {
		log.G(ctx).WithError(err).Info("the guest boots: the spare machine does not fit the pod")
		return
	}
	s.spare = p
}

// fits returns why the machine cannot be that spare, or nil.
func (b *blueprint) fits(p *Spare) error {
	switch f := b.config.Factory; {
	case closed(p.Done()):
		return fmt.Errorf("it has ended: %w", p.machine.vm.Err())
	case f.VMs == 0:
		return errors.New("factory.vm_cache_number is 0")
	case p.machine.template.key != "" && !f.Template:
		return errors.New("it is from a template, and the pod wants none")
	case closed(p.ShareDone()):
		return fmt.Errorf("its share has ended: %w", p.machine.files.Err())
	}
	key, err := b.spareKey()
	if err == nil && key != p.key {
		err = fmt.Errorf("its key is %s, that of the pod's machine %s: %w", p.key, key, errdefs.ErrFailedPrecondition)
	}
	return err
}

// adopting returns the steps of a boot for a sandbox with a spare, which has done some
// of them. The first of those takes over all that they made, and its undo removes it. Of
// the others only agent has an undo, which comes before that one.
func (s *Sandbox) adopting(p *plan) []step {
	p.share.do, p.share.undo = s.adopt, s.endAll
	p.agent.do = s.adoptAgent
	for _, done := range []*step{&p.user, &p.vm, &p.vsock, &p.storage, &p.hardware, &p.resume} {
		done.do, done.undo = func(context.Context) error { return nil }, nil
	}
	return p.boots()
}

// adopt takes over the spare's machine with its files.
func (s *Sandbox) adopt(ctx context.Context) error {
	if !s.spare.take() {
		return fmt.Errorf("adopt spare machine: another sandbox has it: %w", errdefs.ErrUnavailable)
	}
	defer close(s.spare.left)
	err := s.takeOver(&s.spare.machine)
	if err == nil {
		err = s.files.Give(ctx, s.podFileOptions())
	}
	if err != nil {
		return errors.Join(err, s.endAll(context.WithoutCancel(ctx)))
	}
	return nil
}

// adoptAgent takes over the spare's agent if it still answers. The guest may hang, and
// the sandbox must know while it has the time to boot another.
func (s *Sandbox) adoptAgent(ctx context.Context) error {
	if err := s.pingAgent(ctx); err != nil {
		return err
	}
	s.useAgent()
	return nil
}
