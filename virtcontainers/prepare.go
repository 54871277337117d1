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

// preparation registers an exec in the guest and opens its streams there, while the
// engine is still on its way from the exec's creation to its start. As with runc's
// shim, what is wrong with the process is said at its start.
type preparation struct {
	done chan struct{} // closed when err is set
	err  error

	mu      sync.Mutex
	conns   Conns // until they are taken or dropped
	dropped bool
}

// prepare does the work in the background.
func prepare(work func() (Conns, error)) *preparation {
	p := &preparation{done: make(chan struct{})}
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
	return p
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

// prepare registers an exec and opens its streams. The guest's client bounds each
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
	p.prepared = prepare(func() (Conns, error) {
		if err := p.register(ctx, client, spec); err != nil {
			return Conns{}, err
		}
		return openConns(ctx, client, p.container.ID, p.execID, p.io.Streams())
	})
	return nil
}

// register announces an exec to the agent.
func (p *Process) register(ctx context.Context, client *guest.Client, spec *anypb.Any) error {
	req := &task.ExecProcessRequest{ID: p.container.ID, ExecID: p.execID, Terminal: p.terminal, Spec: spec}
	req.Stdin, req.Stdout, req.Stderr = streamNames(p.io.Streams())
	_, err := client.Task().Exec(ctx, req)
	return guest.Err(err)
}
