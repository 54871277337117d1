package service

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

// Rejoin implements the Guest service.
func (s guestService) Rejoin(ctx context.Context, req *api.RejoinRequest) (*api.RejoinResponse, error) {
	if err := s.pod.rejoin(ctx, req); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("rejoin: %w", err))
	}
	return &api.RejoinResponse{}, nil
}

// rejoin makes the pod that of another sandbox. A container keeps its directories
// and its cgroup, which have its first id.
func (p *Pod) rejoin(ctx context.Context, req *api.RejoinRequest) error {
	if err := p.checkOpen(); err != nil {
		return err
	}
	if err := p.checkRenames(req.GetContainers()); err != nil {
		return err
	}
	if err := refresh(req); err != nil {
		return err
	}
	if err := p.rename(req.GetContainers()); err != nil {
		return err
	}
	log.G(ctx).WithField("containers", len(req.GetContainers())).Info("sandbox has another id")
	return nil
}

func (p *Pod) checkRenames(list []*api.RenamedContainer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renameable(list)
}

// rename gives containers other ids: all, or none.
func (p *Pod) rename(list []*api.RenamedContainer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.renameable(list); err != nil {
		return err
	}
	ids := map[*currentID]string{}
	for _, r := range list {
		t := p.tasks[r.GetFrom()]
		delete(p.tasks, r.GetFrom())
		p.tasks[r.GetTo()] = t
		if p.first == r.GetFrom() {
			p.first = r.GetTo()
		}
		ids[t.id] = r.GetTo()
	}
	p.events.rename(ids)
	return nil
}

// renameable returns why containers cannot be given those ids. The caller holds
// mu.
func (p *Pod) renameable(list []*api.RenamedContainer) error {
	if len(list) > api.MaxRenamedContainers {
		return fmt.Errorf("%d containers, want at most %d: %w", len(list), api.MaxRenamedContainers, errdefs.ErrInvalidArgument)
	}
	from, to := map[string]bool{}, map[string]bool{}
	for _, r := range list {
		if err := checkID("container", r.GetTo()); err != nil {
			return err
		}
		if p.tasks[r.GetFrom()] == nil || from[r.GetFrom()] {
			return fmt.Errorf("container %.140q: %w", r.GetFrom(), errdefs.ErrNotFound)
		}
		if p.tasks[r.GetTo()] != nil && r.GetTo() != r.GetFrom() || to[r.GetTo()] {
			return fmt.Errorf("container %s: %w", r.GetTo(), errdefs.ErrAlreadyExists)
		}
		from[r.GetFrom()], to[r.GetTo()] = true, true
	}
	return nil
}

// rename changes containers' ids, also in the events that wait. These become other
// events: one that is just being sent to the host before is sent to this one, too.
func (q *eventQueue) rename(ids map[*currentID]string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := map[string]string{}
	for id, to := range ids {
		names[id.String()] = to
		id.set(to)
	}
	for i, e := range q.events {
		q.events[i] = renamed(e, names)
	}
}

// renamed returns a copy of an event, with its container's other id if it has one.
func renamed(e *api.Event, names map[string]string) *api.Event {
	e = proto.CloneOf(e)
	switch {
	case e.GetExit() != nil:
		if to, ok := names[e.GetExit().GetContainerId()]; ok {
			e.GetExit().ContainerId = to
		}
	case e.GetOom() != nil:
		if to, ok := names[e.GetOom().GetContainerId()]; ok {
			e.GetOom().ContainerId = to
		}
	}
	return e
}
