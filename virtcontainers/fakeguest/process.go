package fakeguest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// container is a container in the guest.
type container struct {
	id     string
	config *api.ContainerConfig
	init   *process

	mu    sync.Mutex // guards execs
	execs map[string]*process
}

func (c *container) process(execID string) (*process, error) {
	if execID == "" {
		return c.init, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.execs[execID]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("exec %s of container %s: %w", execID, c.id, errdefs.ErrNotFound)
}

// running lists the execs that run.
func (c *container) running() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*process
	for _, p := range c.execs {
		if p.is(running) {
			list = append(list, p)
		}
	}
	return list
}

type state int

const (
	created state = iota
	starting
	running
	paused
	stopped
)

// status returns the state in containerd's terms.
func (s state) status() tasktypes.Status {
	return [...]tasktypes.Status{tasktypes.Status_CREATED, tasktypes.Status_CREATED, tasktypes.Status_RUNNING, tasktypes.Status_PAUSED, tasktypes.Status_STOPPED}[s]
}

// process is an init or an exec in the guest.
type process struct {
	id, execID string
	// wanted are the streams that must be bound before it is started.
	wanted []api.Stream
	ended  chan struct{}

	mu      sync.Mutex // guards what follows
	state   state
	streams map[api.Stream]*net.UnixConn
	written map[api.Stream]uint64
	// sent is how much of it was sent, and kept what waits for a connection.
	sent map[api.Stream]uint64
	kept map[api.Stream]string
	// input is what Park has read of stdin; inputEnded is set if that was all.
	input      []byte
	inputEnded bool
	parked     bool // Park was called since the start
	// framed are the streams whose connection has frames.
	framed map[api.Stream]bool
	// replaceable are the streams that Park was called for since they were bound.
	replaceable map[api.Stream]bool
	status      uint32
	deaf        bool
	// doomed is set if the process was to end while it was being started, and dropped
	// if the host does not wait for that.
	doomed, dropped bool
}

func newProcess(id, execID, stdin, stdout, stderr string) *process {
	p := &process{
		id: id, execID: execID, ended: make(chan struct{}),
		streams: make(map[api.Stream]*net.UnixConn), written: make(map[api.Stream]uint64),
		sent: make(map[api.Stream]uint64), kept: make(map[api.Stream]string),
		replaceable: make(map[api.Stream]bool), framed: make(map[api.Stream]bool),
	}
	for kind, name := range map[api.Stream]string{
		api.Stream_STREAM_STDIN: stdin, api.Stream_STREAM_STDOUT: stdout, api.Stream_STREAM_STDERR: stderr,
	} {
		if name != "" {
			p.wanted = append(p.wanted, kind)
		}
	}
	return p
}

func (p *process) is(s state) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == s
}

// turn moves the process from one state to another, or returns why it cannot.
func (p *process) turn(from, to state) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != from {
		return fmt.Errorf("it is %v: %w", p.state.status(), errdefs.ErrFailedPrecondition)
	}
	p.state = to
	return nil
}

// start begins to start the process. All its streams must be bound.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != created {
		return fmt.Errorf("start: not in state created: %w", errdefs.ErrFailedPrecondition)
	}
	for _, kind := range p.wanted {
		if p.streams[kind] == nil {
			return fmt.Errorf("start: no connection for %s: %w", kind, errdefs.ErrFailedPrecondition)
		}
	}
	p.state = starting
	return nil
}

// run lets a process that is being started run. It ends the process without an event if
// the start has failed, the caller has gone, or the process is doomed.
func (p *process) run(ctx context.Context, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state != starting:
		return fmt.Errorf("start: it has ended: %w", errdefs.ErrUnavailable)
	case err == nil && ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && p.doomed:
		err = fmt.Errorf("start: it was killed meanwhile: %w", errdefs.ErrUnavailable)
	}
	if err == nil {
		p.state = running
		return nil
	}
	p.state, p.status = stopped, neverStarted
	close(p.ended)
	return err
}

// neverStarted is the status of a process that could not be started, or was deleted
// before.
const neverStarted = 255

// reachable returns why no signal reaches the process, or nil. An init is there before
// its start, and waits for it.
func (p *process) reachable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state == stopped:
		return fmt.Errorf("process already finished: %w", errdefs.ErrNotFound)
	case p.execID != "" && (p.state == created || p.state == starting):
		return fmt.Errorf("it is not started: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// doom has an exec that is being started end then. It reports whether the process is one.
func (p *process) doom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.execID == "" || p.state != starting {
		return false
	}
	p.doomed = true
	return true
}

// awaitEnd waits for the end of a doomed process. It reports false if ctx ends first;
// the process is then dropped at its end.
func (p *process) awaitEnd(ctx context.Context) bool {
	select {
	case <-p.ended:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = true
	return p.state == stopped
}

// bind gives the process a stream that it waits for. It returns how many bytes
// passed on earlier connections.
func (p *process) bind(kind api.Stream, conn *net.UnixConn, framed bool) (sent uint64, err error) {
	if !slices.Contains(p.wanted, kind) {
		return 0, fmt.Errorf("%s was not asked for: %w", kind, errdefs.ErrInvalidArgument)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams[kind] != nil {
		return 0, fmt.Errorf("%s is bound: %w", kind, errdefs.ErrAlreadyExists)
	}
	p.streams[kind], p.framed[kind] = conn, framed
	p.replaceable[kind] = false
	return p.sent[kind], nil
}

// stream is the connection of that kind, or an error.
func (p *process) stream(kind api.Stream) (*net.UnixConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn := p.streams[kind]; conn != nil {
		return conn, nil
	}
	return nil, fmt.Errorf("%s of %s/%s is not bound: %w", kind, p.id, p.execID, errdefs.ErrNotFound)
}

// write writes to a stream and counts the bytes. What is not sent because of Park
// is kept.
func (p *process) write(kind api.Stream, text string) error {
	if p.keep(kind, text) {
		return nil
	}
	conn, err := p.stream(kind)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.written[kind] += uint64(len(text))
	p.mu.Unlock()
	n, err := p.send(kind, conn, text)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[kind] += uint64(n)
	if err != nil && p.parked && p.streams[kind] != conn {
		p.kept[kind] += text[n:]
		return nil
	}
	return err
}

// send sends output, and returns how much of it was sent.
func (p *process) send(kind api.Stream, conn *net.UnixConn, text string) (int, error) {
	p.mu.Lock()
	framed := p.framed[kind]
	p.mu.Unlock()
	if !framed || text == "" {
		return io.WriteString(conn, text)
	}
	frame := binary.BigEndian.AppendUint32([]byte{api.FrameInline}, uint32(len(text)))
	n, err := conn.Write(append(frame, text...))
	return max(n-api.InlineHeader, 0), err
}

// end ends the process if it is in one of the given states; without any, unless it has
// ended. It returns nil if it has not ended the process.
func (p *process) end(status uint32, in ...state) *api.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == stopped || len(in) > 0 && !slices.Contains(in, p.state) {
		return nil
	}
	p.state, p.status = stopped, status
	close(p.ended)
	return &api.Exit{
		ContainerId: p.id, ExecId: p.execID, Pid: 7, Status: status, ExitedAt: timestamppb.New(time.Now()),
		StdoutBytes: p.written[api.Stream_STREAM_STDOUT], StderrBytes: p.written[api.Stream_STREAM_STDERR],
		Signaled: status > 128 && status <= 128+64,
	}
}

// takeStreams hands over the bound connections.
func (p *process) takeStreams() []*net.UnixConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var conns []*net.UnixConn
	for _, conn := range p.streams {
		conns = append(conns, conn)
	}
	clear(p.streams)
	return conns
}
