package virtcontainers

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
)

const (
	// firstGuestPID is added to the guest's pids in Pids. Engines look up the
	// results on the host (docker top), so they must be larger than any pid there
	// (PID_MAX_LIMIT, linux/threads.h, is 2^22); and the guest's number stays
	// readable.
	firstGuestPID = 1_000_000_000
	// maxPids bounds how many of the guest's processes Pids lists. The guest
	// chooses the number, and the engine holds the whole list.
	maxPids = 8192
	// maxDetails bounds the details of one process that are decoded: an exec's id
	// is far shorter.
	maxDetails = 1024
)

// Pids lists the container's processes: first its stand-in, in place of the
// init, then the others in the guest, under numbers that no process of the host
// has, and with an exec's id if they are one. After 8192 processes of the guest
// the list is cut, with a line in the log. The stand-in alone is listed for a
// container that has ended, while the sandbox hibernates or is saved, and if the
// guest does not answer in time: a container has a process as long as the host knows
// it.
func (c *Container) Pids(ctx context.Context) []*tasktypes.ProcessInfo {
	list := []*tasktypes.ProcessInfo{{Pid: uint32(c.PID())}}
	if closed(c.init.known) || c.sandbox.gone() {
		return list
	}
	leave, ok := c.sandbox.sleeper.tryEnter()
	if !ok {
		return list
	}
	defer leave()
	processes, err := c.guestProcesses(ctx)
	if err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the container's processes in the guest are not listed")
	}
	if len(processes) > maxPids {
		log.G(ctx).WithField("container", c.ID).Warnf("the guest lists %d processes of the container: the list is cut after %d", len(processes), maxPids)
		processes = processes[:maxPids]
	}
	for _, p := range processes {
		if p.Pid != c.guestPID {
			list = append(list, c.believe(p))
		}
	}
	return list
}

func (c *Container) guestProcesses(ctx context.Context) ([]*tasktypes.ProcessInfo, error) {
	client, err := c.sandbox.agent()
	if err != nil {
		return nil, err
	}
	var resp *task.PidsResponse
	err = c.sandbox.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = client.Task().Pids(ctx, &task.PidsRequest{ID: c.ID})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp.Processes, nil
}

// believe makes the engine's entry for a process from the guest's. Nothing of
// the guest's message is passed on but the pid, cut to its range, and the id of
// an exec that the host knows.
func (c *Container) believe(p *tasktypes.ProcessInfo) *tasktypes.ProcessInfo {
	info := &tasktypes.ProcessInfo{Pid: firstGuestPID + p.Pid%firstGuestPID}
	if p.Info == nil || len(p.Info.Value) > maxDetails {
		return info
	}
	var details options.ProcessDetails
	if p.Info.UnmarshalTo(&details) != nil {
		return info // of another type
	}
	if exec, err := c.Process(details.ExecID); err == nil && exec.IsExec() {
		// An error is impossible for a message of one string that was valid.
		info.Info, _ = typeurl.MarshalAnyToProto(&options.ProcessDetails{ExecID: exec.execID})
	}
	return info
}
