package fakeguest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// SaveAll implements hypervisor.Snapshotter: the guest's containers are saved, too.
func (m *machine) SaveAll(ctx context.Context, state *os.File) error {
	if err := m.VM.SaveAll(ctx, state); err != nil {
		return err
	}
	_, err := fmt.Fprintf(state, " %d", m.agent.save())
	return err
}

// LoadAll implements hypervisor.Snapshotter: the agent continues when the machine
// has its vsock.
func (m *machine) LoadAll(ctx context.Context, state *os.File) error {
	if err := m.VM.LoadAll(ctx, state); err != nil {
		return err
	}
	var id string
	var number int
	if _, err := fmt.Sscanf(m.Loaded(), "%s %d", &id, &number); err != nil {
		return fmt.Errorf("load the guest from %q: %w", m.Loaded(), err)
	}
	return m.agent.load(number)
}

// save keeps what load finds by the number that is returned.
func (a *Agent) save() (number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.saved = append(a.saved, (&memory{a.stage, a.containers}).copied())
	return len(a.saved) - 1
}

func (a *Agent) load(number int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if number < 0 || number >= len(a.saved) {
		return fmt.Errorf("load guest %d of %d: %w", number, len(a.saved), errdefs.ErrNotFound)
	}
	a.loaded = a.saved[number].copied()
	return nil
}

// takeLoaded returns what the next machine continues with: nothing, if it boots.
func (a *Agent) takeLoaded() *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	loaded := a.loaded
	a.loaded = nil
	if loaded == nil {
		loaded = &memory{containers: make(map[string]*container)}
	}
	return loaded
}

// memory is what a saved machine has of its guest.
type memory struct {
	stage      stage
	containers map[string]*container
}

func (m *memory) copied() *memory {
	all := make(map[string]*container)
	for id, c := range m.containers {
		c.mu.Lock()
		next := &container{id: c.id, config: c.config, init: c.init.copied(), execs: make(map[string]*process)}
		for execID, p := range c.execs {
			next.execs[execID] = p.copied()
		}
		c.mu.Unlock()
		all[id] = next
	}
	return &memory{m.stage, all}
}

// copied returns the process without its connections.
func (p *process) copied() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := &process{
		id: p.id, execID: p.execID, wanted: slices.Clone(p.wanted), ended: make(chan struct{}), state: p.state,
		streams: make(map[api.Stream]*net.UnixConn), replaceable: make(map[api.Stream]bool), framed: make(map[api.Stream]bool),
		written: maps.Clone(p.written), sent: maps.Clone(p.sent), kept: maps.Clone(p.kept),
		input: slices.Clone(p.input), inputEnded: p.inputEnded, parked: p.parked, status: p.status, deaf: p.deaf,
	}
	if p.state == stopped {
		close(next.ended)
	}
	return next
}
