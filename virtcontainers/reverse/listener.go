package reverse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/virtcontainers/guest"
)

const (
	// maxConnections bounds the simultaneous connections of one Listener,
	// including those that are being made. Each costs two goroutines, two
	// descriptors and two blocks.
	maxConnections = 128
	// dialTimeout bounds each try to take a connection from the agent, and dialling
	// on the host.
	dialTimeout = 10 * time.Second
	// firstPause is the time until the second try to take a connection; it doubles
	// for each further one, up to lastPause.
	firstPause, lastPause = 100 * time.Millisecond, 10 * time.Second
	// takeTimeout bounds all tries: an agent that cannot be reached for that long is
	// lost.
	takeTimeout = 2 * time.Minute
)

// Opener opens a connection to the agent: guest.Client.Reverse.
type Opener func(ctx context.Context, open *api.ReverseOpen) (guest.Conn, error)

// DialFunc connects to what a Listener stands for. It must fail soon after ctx
// ends; the connection outlives ctx.
type DialFunc func(ctx context.Context) (relay.HalfCloser, error)

// Listener has the agent listen in the guest, and joins each connection that is
// made there to one on the host.
type Listener struct {
	open    Opener
	dial    DialFunc
	control guest.Conn
	slots   chan struct{} // holds one element for each connection
	running sync.WaitGroup
	cancel  context.CancelFunc
}

// Listen starts to listen at an address in the guest. ctx bounds the call; its
// values are kept for logs. The Listener lives until Close, or until the
// guest's end.
func Listen(ctx context.Context, open Opener, what *api.ReverseListen, dial DialFunc) (*Listener, error) {
	control, err := open(ctx, &api.ReverseOpen{What: &api.ReverseOpen_Listen{Listen: what}})
	if err != nil {
		return nil, fmt.Errorf("listen in the guest: %w", err)
	}
	l := &Listener{open: open, dial: dial, control: control, slots: make(chan struct{}, maxConnections)}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.running.Go(func() {
		err := l.serve(ctx)
		if ctx.Err() == nil {
			log.G(ctx).WithError(err).Debug("no connections come from the guest any more")
		}
	})
	return l, nil
}

// Close stops listening, ends every connection, and waits for them. It may be
// called again.
func (l *Listener) Close() error {
	l.cancel()
	err := l.control.Close()
	l.running.Wait()
	if err != nil && !guest.Disconnected(err) {
		return fmt.Errorf("stop listening in the guest: %w", err)
	}
	return nil
}

// serve reads announcements until the agent's connection ends. While there are
// too many connections it reads none, and the guest's clients wait.
func (l *Listener) serve(ctx context.Context) error {
	listening, stop := context.WithCancel(ctx)
	defer stop()
	for {
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var incoming api.Incoming
		if err := api.ReadFrame(l.control, &incoming); err != nil {
			return err
		}
		l.running.Go(func() {
			defer func() { <-l.slots }()
			if err := l.join(ctx, listening, incoming.GetConnection()); err != nil {
				log.G(ctx).WithError(err).Debug("a connection from the guest ended")
			}
		})
	}
}

// join serves one connection to its end. If the host's server does not answer,
// the guest's client sees a reset, or of a UNIX socket an end of file: its connect has
// already succeeded.
// listening ends with the agent's announcements.
func (l *Listener) join(ctx, listening context.Context, id uint64) error {
	near, err := l.take(ctx, listening, id)
	if err != nil {
		return err
	}
	far, err := l.reach(ctx)
	if err != nil {
		return errors.Join(err, near.Close())
	}
	return relay.Join(ctx, near, far)
}

// reach makes a connection on the host.
func (l *Listener) reach(ctx context.Context) (relay.HalfCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return l.dial(ctx)
}

// take takes the guest's connection. It tries until the agent answers: a connection
// that was announced keeps one of the listener's places in the guest until then.
func (l *Listener) take(ctx, listening context.Context, id uint64) (guest.Conn, error) {
	listening, cancel := context.WithTimeout(listening, takeTimeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		near, err := l.tryTake(ctx, id)
		if err == nil || errors.As(err, new(guest.RefusedError)) {
			return near, err
		}
		select {
		case <-listening.Done():
			return nil, err
		case <-time.After(pause):
			log.G(ctx).WithError(err).Debug("a connection from the guest could not be taken yet")
		}
	}
}

// tryTake asks the agent once for a connection.
func (l *Listener) tryTake(ctx context.Context, id uint64) (guest.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return l.open(ctx, &api.ReverseOpen{What: &api.ReverseOpen_Take{Take: id}, Marked: true})
}
