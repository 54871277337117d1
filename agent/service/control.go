package service

import (
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

// pause freezes a running container.
func (p *Pod) pause(id string) error {
	return p.turn(id, "pause", running, paused, Container.Pause)
}

// resume thaws a paused container.
func (p *Pod) resume(id string) error {
	return p.turn(id, "resume", paused, running, Container.Resume)
}

// turn moves a container from one state to another by do.
func (p *Pod) turn(id, verb string, from, to state, do func(Container) error) error {
	t, err := p.task(id)
	if err != nil {
		return err
	}
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
