package virtiofs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/internal/ownthread"
)

// giveUpWait bounds the wait for a thread to end. A thread takes longer only if it
// waits for a hung file system, and is then abandoned.
const giveUpWait = time.Second

// state is how far the device's state is saved or loaded. QEMU saves it after
// the machine has stopped, and loads it before the machine starts.
type state struct {
	// mu guards the following.
	mu sync.Mutex
	// busy is set while a thread saves or loads, which may be longer than the
	// front end waits: it may wait for a hung file system.
	busy bool
	// broken is set while what the guest knows is not, or not completely,
	// loaded.
	broken bool
	err    error // of the last transfer
}

// usable returns an error if no guest may be served: it would find nothing of
// what it knows.
func (s *state) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

func (s *state) usableLocked() error {
	if s.broken {
		return fmt.Errorf("what the guest knows of its files was not loaded: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// begin reserves the state for a thread.
func (s *state) begin(load bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return fmt.Errorf("an earlier save or load still waits for a file system: %w", errdefs.ErrUnavailable)
	}
	if !load {
		if err := s.usableLocked(); err != nil {
			return err
		}
	}
	s.busy, s.broken = true, load
	return nil
}

// end undoes begin, and keeps the result.
func (s *state) end(load bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	if load {
		s.broken = err != nil
	}
}

func (s *state) last() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// SaveState implements vhostuser.StateKeeper.
func (d *device) SaveState(ctx context.Context, w io.Writer) error {
	pool := d.by.Load().pool
	return d.moveState(ctx, false, func(t *passthrough.Thread) error { return pool.fs.Save(ctx, t, w) })
}

// LoadState implements vhostuser.StateKeeper.
func (d *device) LoadState(ctx context.Context, r io.Reader) error {
	pool := d.by.Load().pool
	return d.moveState(ctx, true, func(t *passthrough.Thread) error { return pool.fs.Load(ctx, t, r) })
}

// StateMoved implements vhostuser.StateKeeper.
func (d *device) StateMoved(err error) {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	d.state.err = err
}

// moveState runs f on a confined thread, and waits for it until ctx has ended.
func (d *device) moveState(ctx context.Context, load bool, f func(t *passthrough.Thread) error) error {
	if err := d.state.begin(load); err != nil {
		return err
	}
	result := make(chan error, 1)
	end := func(err error) {
		d.state.end(load, err)
		result <- err
	}
	if err := d.by.Load().pool.aside(f, end); err != nil {
		end(err)
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(giveUpWait)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
		return fmt.Errorf("wait for a file system: %w", ctx.Err())
	}
}

// aside calls f on another confined thread, and then end with its result.
func (p *pool) aside(f func(t *passthrough.Thread) error, end func(error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return errors.New("the device is closing")
	}
	p.count++
	p.threads.Add(1)
	ownthread.Go(func() {
		defer p.threads.Done()
		err := p.jail.Enter()
		if err == nil {
			err = f(passthrough.NewThread())
		}
		p.mu.Lock()
		p.count--
		p.mu.Unlock()
		end(err)
	})
	return nil
}
