package fakeguest

import (
	"context"
	"fmt"
	"io"
	"net"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/warmup"
)

// find returns a process of the guest.
func (a *Agent) find(id, execID string) (*container, *process, error) {
	a.mu.Lock()
	c := a.containers[id]
	a.mu.Unlock()
	if c == nil {
		return nil, nil, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	p, err := c.process(execID)
	return c, p, err
}

// Exit ends a process (execID "" is the init) with that status, and with an init
// its container's execs, whose exits are reported first.
func (a *Agent) Exit(id, execID string, status uint32) error {
	c, p, err := a.find(id, execID)
	if err != nil {
		return err
	}
	if execID == "" {
		for _, exec := range c.running() {
			a.finish(exec, 128+9)
		}
	}
	a.finish(p, status)
	return nil
}

// finish ends one process, tells the host, and closes its streams.
func (a *Agent) finish(p *process, status uint32) {
	exit := p.end(status)
	if exit == nil {
		return
	}
	a.Send(&api.Event{Event: &api.Event_Exit{Exit: exit}})
	for _, conn := range p.takeStreams() {
		a.hangUp(conn)
	}
}

// warmUp has a process that was started before there is a pod run to its end: it
// is that of package warmup.
func (a *Agent) warmUp(p *process) error {
	if !a.isStage(prepared) {
		return nil
	}
	if err := p.write(api.Stream_STREAM_STDOUT, warmup.Output); err != nil {
		return err
	}
	a.finish(p, 0)
	return nil
}

// Write has a process write to stdout. It blocks when the host reads nothing.
func (a *Agent) Write(id, execID, text string) error {
	_, p, err := a.find(id, execID)
	if err != nil {
		return err
	}
	return p.write(api.Stream_STREAM_STDOUT, text)
}

// WriteError is Write for stderr.
func (a *Agent) WriteError(id, execID, text string) error {
	_, p, err := a.find(id, execID)
	if err != nil {
		return err
	}
	return p.write(api.Stream_STREAM_STDERR, text)
}

// ReadInput reads a process's stdin to its end.
func (a *Agent) ReadInput(id, execID string) (string, error) {
	_, p, err := a.find(id, execID)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	kept, ended := string(p.input), p.inputEnded
	p.mu.Unlock()
	if ended {
		return kept, nil
	}
	conn, err := p.stream(api.Stream_STREAM_STDIN)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(conn)
	return kept + string(data), err
}

// ShowProcesses sets what Pids answers for each container; nil is the truth.
func (a *Agent) ShowProcesses(list []*tasktypes.ProcessInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes = list
}

func (a *Agent) shown() []*tasktypes.ProcessInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.processes
}

// Deafen makes a process outlive every signal: the calls are answered and
// have no effect.
func (a *Agent) Deafen(id, execID string) error {
	_, p, err := a.find(id, execID)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
	return nil
}

// Spec is the OCI spec of a container as the host sent it, or nil.
func (a *Agent) Spec(id string) []byte {
	c, _, err := a.find(id, "")
	if err != nil {
		return nil
	}
	return c.config.GetSpec()
}

// Config is what the host said of a container beside its request, or nil.
func (a *Agent) Config(id string) *api.ContainerConfig {
	c, _, err := a.find(id, "")
	if err != nil {
		return nil
	}
	return c.config
}

// SetMetrics sets every container's counters, encoded.
func (a *Agent) SetMetrics(encoded []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.metrics = encoded
}

// Metrics returns every container's counters.
func (a *Agent) Metrics() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.metrics
}

// Containers returns how many containers are in the guest; 0 when it is dead.
func (a *Agent) Containers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.up {
		return 0
	}
	return len(a.containers)
}

// openStream binds a stdio connection to its process.
func (a *Agent) openStream(conn *net.UnixConn) {
	var open api.StreamOpen
	if err := api.ReadFrame(conn, &open); err != nil {
		a.hangUp(conn)
		return
	}
	err := a.enter(context.Background(), Stream, &open)
	var p *process
	answer := &api.StreamOpened{}
	if err == nil {
		if _, p, err = a.find(open.ContainerId, open.ExecId); err == nil {
			err = a.replace(context.Background(), p, open.Stream)
		}
		if err == nil {
			answer.Framed = open.OutputFile != "" && open.Stream != api.Stream_STREAM_STDIN
			answer.Sent, err = p.bind(open.Stream, conn, answer.Framed)
		}
	}
	if err != nil {
		answer.Error = err.Error()
	}
	if api.WriteFrame(conn, answer) != nil || err != nil {
		a.hangUp(conn)
		return
	}
	a.flush(p, open.Stream, conn)
}
