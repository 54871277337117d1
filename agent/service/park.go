package service

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

// Park implements the Guest service.
func (s guestService) Park(ctx context.Context, req *api.ParkRequest) (*api.ParkResponse, error) {
	if err := s.pod.park(ctx, req.GetInputs()); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.ParkResponse{}, nil
}

// park ends the connections of all stdio. If some cannot be ended, the others are.
// An input that is announced and does not exist was deleted meanwhile.
func (p *Pod) park(ctx context.Context, inputs []*api.ParkedInput) error {
	if err := p.parking.Lock(ctx); err != nil {
		return fmt.Errorf("wait for another park: %w", err)
	}
	defer p.parking.Unlock()
	sent := map[*process]*uint64{}
	for _, in := range inputs {
		if _, proc, err := p.process(in.GetContainerId(), in.GetExecId()); err == nil {
			sent[proc] = &in.Bytes
		}
	}
	processes := p.allProcesses()
	errs := make([]error, len(processes))
	var parks sync.WaitGroup
	for i, proc := range processes {
		parks.Go(func() {
			if err := proc.stdio.Park(ctx, sent[proc]); err != nil {
				errs[i] = fmt.Errorf("%s: %w", proc.name(), err)
			}
		})
	}
	parks.Wait()
	return errors.Join(errs...)
}

// allProcesses returns the inits and execs that were not deleted.
func (p *Pod) allProcesses() []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*process
	for _, t := range p.tasks {
		list = append(append(list, t.init), t.allExecs()...)
	}
	return list
}
