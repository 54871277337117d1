package chaos

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/typeurl/v2"

	"github.com/katabox/katabox/tests/harness"
)

// exit is one TaskExit.
type exit struct {
	container, id string
	code          uint32
	at            time.Time
}

// tape records the exits that a daemon reports, even across its death: it tries
// to reconnect before the shims do, which try every 50 ms at most.
type tape struct {
	mu    sync.Mutex // guards what follows
	exits []exit
	// lost is when its last subscription but one ended, and since when the last
	// began.
	lost, since time.Time

	cancel context.CancelFunc
	done   chan struct{}
}

func record(ctx context.Context, d *harness.Daemon) *tape {
	ctx, cancel := context.WithCancel(d.Context(context.WithoutCancel(ctx)))
	r := &tape{cancel: cancel, done: make(chan struct{})}
	subscribed := make(chan struct{})
	go r.run(ctx, d.Socket(), sync.OnceFunc(func() { close(subscribed) }))
	<-subscribed
	return r
}

func (r *tape) stop() {
	r.cancel()
	<-r.done
}

// run subscribes again and again, until ctx ends. It uses its own client,
// because the daemon's waits between two tries.
func (r *tape) run(ctx context.Context, socket string, subscribed func()) {
	defer close(r.done)
	defer subscribed()
	for ctx.Err() == nil {
		if c, err := connect(socket); err == nil {
			r.follow(ctx, c, subscribed)
			_ = c.Close()
		}
		time.Sleep(time.Millisecond) // containerd is down
	}
}

// connect fails immediately without a listener, whereas a client would wait.
func connect(socket string) (*client.Client, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	return client.New(socket)
}

// follow records until the subscription ends.
func (r *tape) follow(ctx context.Context, c *client.Client, subscribed func()) {
	envelopes, errs := c.Subscribe(ctx, `topic=="/tasks/exit"`)
	r.mu.Lock()
	r.since = time.Now()
	r.mu.Unlock()
	subscribed()
	for {
		select {
		case e := <-envelopes:
			if value, err := typeurl.UnmarshalAny(e.Event); err == nil {
				r.add(value)
			}
		case <-errs:
			r.mu.Lock()
			r.lost = time.Now()
			r.mu.Unlock()
			return
		}
	}
}

func (r *tape) add(value any) {
	if e, ok := value.(*events.TaskExit); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.exits = append(r.exits, exit{e.ContainerID, e.ID, e.ExitStatus, e.ExitedAt.AsTime()})
	}
}

// codes returns the codes of one process's exits so far.
func (r *tape) codes(container, id string) []uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []uint32
	for _, e := range r.exits {
		if e.container == container && e.id == id {
			found = append(found, e.code)
		}
	}
	return found
}

// missed reports whether an exit at that time may have been reported between the
// tape's last two subscriptions: on a busy host a shim can be faster. The zero
// time is unknown, and was not missed.
func (r *tape) missed(exited time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost.IsZero() && exited.After(r.lost.Add(-reporting)) && exited.Before(r.since.Add(subscribing))
}

// String says when nothing was recorded.
func (r *tape) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("nothing was recorded from %v to %v", r.lost, r.since)
}

const (
	// reporting is how long an exit may take from the guest to the engine.
	reporting = time.Second
	// subscribing is how long containerd may take to register a subscription.
	subscribing = 100 * time.Millisecond
)

// await waits for the first exit of a process.
func (r *tape) await(ctx context.Context, container, id string) error {
	for len(r.codes(container, id)) == 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the exit event of %s in %s: %w", id, container, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
