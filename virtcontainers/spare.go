package virtcontainers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/internal/spans"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
)

// Spare is a machine that runs and whose agent has answered, but which belongs
// to no pod yet. One sandbox adopts it (Platform.Spare), or Close ends it.
type Spare struct {
	key     factory.Key
	machine machine

	// left is closed when nothing of it is in its directory any more.
	left chan struct{}

	mu    sync.Mutex // guards taken
	taken bool
}

// MakeSpare starts a machine for sandboxes of this configuration: from its
// template if there is one. The record of what it has on the host is in dir,
// which may be missing, until a sandbox adopts it. ctx bounds the call. Nothing
// but dir is left on an error.
func MakeSpare(ctx context.Context, platform Platform, id string, cfg *config.Config, dir string) (*Spare, error) {
	b, err := newBlueprint(ctx, platform, id, cfg)
	if err != nil {
		return nil, err
	}
	b.platform.states = dir
	p := &Spare{machine: newMachine(*b, spans.New(time.Now())), left: make(chan struct{})}
	if p.key, err = b.spareKey(); err == nil {
		err = p.machine.boot.run(ctx, p.machine.spareSteps())
	}
	p.machine.judgeTemplate(ctx, err)
	if err != nil {
		return nil, fmt.Errorf("start spare machine: %w", err)
	}
	return p, nil
}

// spareSteps are the steps of a boot that need to know nothing of the pod.
func (m *machine) spareSteps() []step {
	p := m.plan()
	warmUp := step{"warm-up", func(ctx context.Context) error { return m.warmUp(ctx, false) }, nil}
	return []step{p.state, p.share, p.user, p.vm, p.vsock, p.storage, p.hardware, p.resume, p.agent, warmUp}
}

// Key is the key of the sandboxes' machines that fit it.
func (p *Spare) Key() factory.Key { return p.key }

// PID is the VMM's process id.
func (p *Spare) PID() int { return p.machine.vm.PID() }

// Processes are the ids of the processes that the machine has beside this one.
func (p *Spare) Processes() []int {
	list := []int{p.PID()}
	if daemon := p.machine.files.DaemonPID(); daemon != 0 {
		list = append(list, daemon)
	}
	return list
}

// Done is closed when the machine has ended.
func (p *Spare) Done() <-chan struct{} { return p.machine.vm.Done() }

// ShareDone is closed when the machine's share is no longer served: no sandbox
// adopts it then. Without a share it is never closed.
func (p *Spare) ShareDone() <-chan struct{} { return p.machine.files.Done() }

// Ping checks that the guest answers, as long as a pod waits for that. No sandbox may
// adopt the machine before Ping has returned.
func (p *Spare) Ping(ctx context.Context) error { return p.machine.pingAgent(ctx) }

// Left is closed when the directory is not needed any more: a sandbox has adopted
// the machine, or Close has ended it.
func (p *Spare) Left() <-chan struct{} { return p.left }

// take reports whether the caller is the first; it owns the machine then.
func (p *Spare) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.taken
	p.taken = true
	return first
}

// Close ends the machine, unless a sandbox has adopted it. It may be called
// again.
func (p *Spare) Close(ctx context.Context) error {
	if p == nil || !p.take() {
		return nil
	}
	defer close(p.left)
	return p.machine.boot.unwind(ctx)
}

// discard is Close for a sandbox that did not adopt the spare.
func (p *Spare) discard(ctx context.Context) {
	if err := p.Close(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("a spare machine could not be ended completely")
	}
}
