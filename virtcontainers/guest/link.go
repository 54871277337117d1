package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/agent/api"
)

// link is a connection for calls. Each has another ttrpc client, because one whose
// connection was cut keeps the pieces of messages, and its writer's error.
type link struct {
	rpc   *ttrpc.Client
	task  task.TTRPCTaskService
	guest api.GuestClient
	// invoke makes a call on this link; nil before its first one, the greeting.
	invoke atomic.Pointer[ttrpc.Invoker]
}

// links is the link in use, and what happens to it:
//
//	              Suspend                  Relink
//	[established] ------> [suspended] ----------------> [established], another
//	                           |   the old one may end
//
// Close ends it in each state.
type links struct {
	mu  sync.Mutex // guards what follows
	now *link
	// settled is closed by Relink and Close; nil unless suspended.
	settled chan struct{}
	closed  bool
}

// Suspend makes the loss of the guest's connections no error until Relink: the
// vsock device is about to be detached. Events and ForwardLog wait for Relink
// when theirs end. No call may be under way, or be made until then: it fails
// with the connection. It may be called again, and does not block.
func (c *Client) Suspend() {
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	if c.links.settled == nil && !c.links.closed {
		c.links.settled = make(chan struct{})
	}
}

// Relink follows Suspend when the guest has its device again. As Connect does, it
// waits within ctx until the agent listens, and calls Hello; Info and Clock stay
// what they are. Then Events and ForwardLog go on over new connections, even if
// the device was not detached after all. It does not call pass. After an error
// the Client is still suspended, and Relink may be called again. One that is not
// suspended is an errdefs.ErrFailedPrecondition.
func (c *Client) Relink(ctx context.Context) error {
	if !c.links.isSuspended() {
		return errNotSuspended
	}
	next, err := c.newLink(ctx)
	if err != nil {
		return fmt.Errorf("connect to the agent again: %w", err)
	}
	if _, _, err := greetAgent(WithoutPass(ctx), next); err != nil {
		return errors.Join(fmt.Errorf("connect to the agent again: %w", err), next.rpc.Close())
	}
	if err := c.links.replace(next); err != nil {
		return errors.Join(err, next.rpc.Close())
	}
	return nil
}

var errNotSuspended = fmt.Errorf("connect to the agent again: it was not suspended: %w", errdefs.ErrFailedPrecondition)

// newLink connects for calls as soon as the agent listens.
func (c *Client) newLink(ctx context.Context) (*link, error) {
	conn, err := dialUntilUp(ctx, c.dial)
	if err != nil {
		return nil, err
	}
	l := new(link)
	l.rpc = ttrpc.NewClient(takingConn{conn}, ttrpc.WithUnaryClientInterceptor(c.passing(l, observed(c.calls, bound(CallTimeout)))))
	l.task, l.guest = task.NewTTRPCTaskClient(l.rpc), api.NewGuestClient(l.rpc)
	return l, nil
}

func (l *links) isSuspended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled != nil
}

// replace ends the suspension with another link.
func (l *links) replace(next *link) error {
	old, err := l.swap(next)
	if err != nil {
		return err
	}
	_ = old.rpc.Close() // it never fails (ttrpc's client.go)
	return nil
}

func (l *links) swap(next *link) (old *link, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, fmt.Errorf("connect to the agent again: %w", net.ErrClosed)
	case l.settled == nil:
		return nil, errNotSuspended // another Relink was faster
	}
	old, l.now = l.now, next
	close(l.settled)
	l.settled = nil
	return old, nil
}

// current returns the link in use.
func (l *links) current() *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// after returns the link that replaces old, one of whose connections ended with
// lost. It waits for that while the Client is suspended. If none replaces it,
// because the loss is a real one, the Client is closed or ctx has ended, it
// returns nil and the reason, which may be a lost of nil.
func (l *links) after(ctx context.Context, old *link, lost error) (*link, error) {
	for ctx.Err() == nil {
		l.mu.Lock()
		now, settled := l.now, l.settled
		l.mu.Unlock()
		switch {
		case settled != nil:
			select {
			case <-settled:
			case <-ctx.Done():
			}
		case now == old:
			return nil, lost
		default:
			return now, nil
		}
	}
	return nil, lost
}

// close closes the link in use. What waits for another ends.
func (l *links) close() error {
	l.mu.Lock()
	l.closed = true
	if l.settled != nil {
		close(l.settled)
		l.settled = nil
	}
	now := l.now
	l.mu.Unlock()
	return now.rpc.Close()
}
