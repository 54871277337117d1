package fakeguest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// lastInput is how long Park waits for an input that the host did not announce.
const lastInput = 100 * time.Millisecond

// Park implements the Guest service.
func (s guestService) Park(ctx context.Context, req *api.ParkRequest) (*api.ParkResponse, error) {
	return answer(ctx, s.agent, "Park", req, func() (*api.ParkResponse, error) {
		return &api.ParkResponse{}, s.agent.park(ctx, req.GetInputs())
	})
}

func (a *Agent) park(ctx context.Context, inputs []*api.ParkedInput) error {
	a.parking.Lock() // a Park that its caller gave up ends first
	defer a.parking.Unlock()
	sent := map[*process]uint64{}
	for _, in := range inputs {
		if _, p, err := a.find(in.GetContainerId(), in.GetExecId()); err == nil {
			sent[p] = in.GetBytes()
		}
	}
	processes := a.allProcesses()
	for _, p := range processes {
		p.allowReplacing()
	}
	for _, p := range processes {
		bytes, counted := sent[p]
		if err := p.keepInput(ctx, bytes, counted); err != nil {
			return err
		}
		p.mu.Lock()
		p.parked = true
		p.mu.Unlock()
		for _, conn := range p.takeStreams() {
			a.hangUp(conn)
		}
	}
	return nil
}

// allProcesses returns the inits and execs of all containers.
func (a *Agent) allProcesses() []*process {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*process
	for _, c := range a.containers {
		list = append(list, c.init)
		c.mu.Lock()
		for _, exec := range c.execs {
			list = append(list, exec)
		}
		c.mu.Unlock()
	}
	return list
}

// allowReplacing lets the next connection of each stream take the place of the one
// that there is: Park may fail.
func (p *process) allowReplacing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind := range p.streams {
		p.replaceable[kind] = true
	}
}

// replace ends the connection of a stream that Park has failed for.
func (a *Agent) replace(ctx context.Context, p *process, kind api.Stream) error {
	a.parking.Lock()
	defer a.parking.Unlock()
	p.mu.Lock()
	old, replaceable := p.streams[kind], p.replaceable[kind]
	p.mu.Unlock()
	if old == nil || !replaceable {
		return nil
	}
	if kind == api.Stream_STREAM_STDIN {
		if err := p.keepInput(ctx, 0, false); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.parked = true
	delete(p.streams, kind)
	p.mu.Unlock()
	a.hangUp(old)
	return nil
}

// keepInput reads what the host has sent: so many bytes on all connections, or all
// that has arrived.
func (p *process) keepInput(ctx context.Context, sent uint64, counted bool) error {
	conn, err := p.stream(api.Stream_STREAM_STDIN)
	if errdefs.IsNotFound(err) {
		return nil
	}
	p.mu.Lock()
	want := int64(sent) - int64(len(p.input))
	p.mu.Unlock()
	if !counted {
		want = math.MaxInt64
		_ = conn.SetReadDeadline(time.Now().Add(lastInput))
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	data, err := io.ReadAll(io.LimitReader(conn, want))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.input = append(p.input, data...)
	p.sent[api.Stream_STREAM_STDIN] = uint64(len(p.input))
	p.inputEnded = err == nil && int64(len(data)) < want
	if counted && err != nil {
		_ = conn.SetReadDeadline(time.Time{})
		return fmt.Errorf("park: read input: %w", errors.Join(err, context.Cause(ctx)))
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		p.inputEnded = true
	}
	return nil
}

// keep reports whether a process waits for a connection since Park; it then keeps
// and counts what is written.
func (p *process) keep(kind api.Stream, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.parked || p.state == stopped || p.streams[kind] != nil || !slices.Contains(p.wanted, kind) {
		return false
	}
	p.kept[kind] += text
	p.written[kind] += uint64(len(text))
	return true
}

// flush sends what a process has written while it was parked. The stream of a
// process that has ended ends then.
func (a *Agent) flush(p *process, kind api.Stream, conn *net.UnixConn) {
	p.mu.Lock()
	kept := p.kept[kind]
	delete(p.kept, kind)
	p.mu.Unlock()
	n, _ := p.send(kind, conn, kept) // A lost connection has an end, too.
	p.mu.Lock()
	p.sent[kind] += uint64(n)
	p.mu.Unlock()
	if p.is(stopped) {
		a.hangUp(conn)
	}
}
