package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/typeurl/v2"
)

// container finds a container that was made and not deleted.
func (p *Pod) container(id string) (Container, error) {
	t, err := p.task(id)
	if err != nil {
		return nil, err
	}
	return t.container()
}

// pids lists a container's processes; execs are marked.
func (p *Pod) pids(id string) ([]*tasktypes.ProcessInfo, error) {
	t, err := p.task(id)
	if err != nil {
		return nil, err
	}
	ctr, err := t.container()
	if err != nil {
		return nil, err
	}
	pids, err := ctr.Pids()
	if err != nil {
		return nil, err
	}
	execs := map[uint32]string{}
	for _, exec := range t.startedExecs() {
		execs[exec.pid()] = exec.execID
	}
	var list []*tasktypes.ProcessInfo
	for _, pid := range pids {
		info := &tasktypes.ProcessInfo{Pid: uint32(pid)}
		if execID, ok := execs[info.Pid]; ok {
			details, err := typeurl.MarshalAnyToProto(&options.ProcessDetails{ExecID: execID})
			if err != nil {
				return nil, fmt.Errorf("encode process details: %w", err)
			}
			info.Info = details
		}
		list = append(list, info)
	}
	return list, nil
}

// pause freezes a running container. If the host's deadline has passed meanwhile, for
// the host the container runs, and it is thawed.
func (p *Pod) pause(ctx context.Context, id string) error {
	return p.turn(ctx, id, "pause", running, paused, func(ctr Container) error {
		err := ctr.Pause()
		if err == nil && ctx.Err() != nil {
			err = errors.Join(fmt.Errorf("container %s was paused too late for the host: %w", id, context.Cause(ctx)), ctr.Resume())
		}
		return err
	})
}

// resume thaws a paused container. It waits for a pause that is under way.
func (p *Pod) resume(ctx context.Context, id string) error {
	return p.turn(ctx, id, "resume", paused, running, Container.Resume)
}

// turn moves a container from one state to another by do.
func (p *Pod) turn(ctx context.Context, id, verb string, from, to state, do func(Container) error) error {
	t, err := p.task(id)
	if err != nil {
		return err
	}
	if err := t.turning.Lock(ctx); err != nil {
		return fmt.Errorf("%s container %s: wait for the call before: %w", verb, id, err)
	}
	defer t.turning.Unlock()
	if err := t.init.check(verb, from); err != nil {
		return err
	}
	ctr, err := t.container()
	if err != nil {
		return err
	}
	if err := do(ctr); err != nil {
		return err
	}
	return t.init.move(verb, to, from)
}
