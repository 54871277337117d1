package fakeguest

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// Rejoin implements the Guest service.
func (s guestService) Rejoin(ctx context.Context, req *api.RejoinRequest) (*api.RejoinResponse, error) {
	return answer(ctx, s.agent, "Rejoin", req, func() (*api.RejoinResponse, error) {
		return &api.RejoinResponse{}, s.agent.rejoin(req)
	})
}

// Rejoined is the last request that gave the guest to another sandbox, or nil.
func (a *Agent) Rejoined() *api.RejoinRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rejoined
}

func (a *Agent) rejoin(req *api.RejoinRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkOpen(); err != nil {
		return fmt.Errorf("rejoin: %w", err)
	}
	for _, r := range req.GetContainers() {
		if err := bundle.CheckID(r.GetTo()); err != nil {
			return fmt.Errorf("rejoin: %w", err)
		}
		if a.containers[r.GetFrom()] == nil {
			return fmt.Errorf("rejoin: container %s: %w", r.GetFrom(), errdefs.ErrNotFound)
		}
		if r.GetTo() != r.GetFrom() && a.containers[r.GetTo()] != nil {
			return fmt.Errorf("rejoin: container %s: %w", r.GetTo(), errdefs.ErrAlreadyExists)
		}
	}
	a.rejoined = req
	for _, r := range req.GetContainers() {
		c := a.containers[r.GetFrom()]
		delete(a.containers, r.GetFrom())
		a.containers[r.GetTo()] = c
		c.rename(r.GetTo())
		a.events.rename(r.GetFrom(), r.GetTo())
	}
	return nil
}

// rename gives a container and its processes another id. The agent's mu is held.
func (c *container) rename(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
	c.init.rename(id)
	for _, exec := range c.execs {
		exec.rename(id)
	}
}

func (p *process) rename(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id = id
}

// rename gives the events that wait a container's other id.
func (q *eventQueue) rename(from, to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, e := range q.events {
		e = proto.CloneOf(e)
		if exit := e.GetExit(); exit.GetContainerId() == from {
			exit.ContainerId = to
		}
		if oom := e.GetOom(); oom.GetContainerId() == from {
			oom.ContainerId = to
		}
		q.events[i] = e
	}
}
