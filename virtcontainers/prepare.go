package virtcontainers

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// preparation is what the guest does for a process while the host, or the engine,
// does something else: it registers an exec that the engine will start, and opens
// streams.
type preparation struct {
	done chan struct{} // closed when err is set
	err  error

	mu      sync.Mutex
	conns   Conns // until they are taken or dropped
	dropped bool
}

func newPreparation() *preparation { return &preparation{done: make(chan struct{})} }

// begin does the work in the background. It is called once.
func (p *preparation) begin(work func() (Conns, error)) {
	go func() {
		defer close(p.done)
		conns, err := work()
		p.err = err
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.conns = conns; p.dropped {
			p.closeConns()
		}
	}()
}

// await waits for the end of the work, and returns its error.
func (p *preparation) await(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take waits for the streams. The caller owns them then.
func (p *preparation) take(ctx context.Context) (Conns, error) {
	if err := p.await(ctx); err != nil {
		return Conns{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped {
		return Conns{}, fmt.Errorf("its streams are closed: %w", errdefs.ErrUnavailable)
	}
	conns := p.conns
	p.conns = Conns{}
	return conns, nil
}

// drop closes streams that were not taken, also those that are not open yet.
func (p *preparation) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = true
	p.closeConns()
}

func (p *preparation) closeConns() {
	p.conns.close()
	p.conns = Conns{}
}

// prepare begins to register an exec and to open its streams. As with runc's shim,
// what is wrong with the process is said at its start. The guest's client bounds each
// step, which does not end with ctx, the engine's call.
func (p *Process) prepare(ctx context.Context, spec *anypb.Any) error {
	if err := json.Unmarshal(spec.GetValue(), new(specs.Process)); err != nil {
		return fmt.Errorf("decode process %s: %w: %w", p.execID, err, errdefs.ErrInvalidArgument)
	}
	leave, err := p.container.sandbox.calls.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	client, err := p.container.sandbox.agent()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	p.prepared.begin(func() (Conns, error) {
		if err := p.register(ctx, client, spec); err != nil {
			return Conns{}, err
		}
		return openConns(ctx, client, p.container.ID, p.execID, p.io.Streams())
	})
	return nil
}

// openStreams begins to open an init's streams.
func (p *Process) openStreams(ctx context.Context) {
	client := p.container.sandbox.client
	p.prepared.begin(func() (Conns, error) {
		return openConns(ctx, client, p.container.ID, "", p.io.Streams())
	})
}

// connect opens the engine's ends of the process's stdio.
func (p *Process) connect(ctx context.Context) error {
	conns, err := p.prepared.take(ctx)
	if err != nil {
		return err
	}
	if !p.IsExec() {
		conns = p.container.noteFirstOutput(conns)
	}
	return p.io.Connect(conns)
}

// closeIO closes both ends of the process's stdio.
func (p *Process) closeIO() {
	p.io.Close()
	p.prepared.drop()
}

// register announces an exec to the agent.
func (p *Process) register(ctx context.Context, client *guest.Client, spec *anypb.Any) error {
	req := &task.ExecProcessRequest{ID: p.container.ID, ExecID: p.execID, Terminal: p.terminal, Spec: spec}
	req.Stdin, req.Stdout, req.Stderr = streamNames(p.io.Streams())
	_, err := client.Task().Exec(ctx, req)
	return guest.Err(err)
}
