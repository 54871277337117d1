package guest

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// Pass lets a call to the guest pass, which is named for errors. It waits, within
// ctx, for a guest that does not run; leave must follow the call.
type Pass func(ctx context.Context, call string) (leave func(), err error)

// Guard has pass called before each later call, and before each later connection
// is made. It must itself be called before the Client has several users.
func (c *Client) Guard(pass Pass) { c.pass = pass }

// unguarded marks the context of a call for which pass is not called.
type unguarded struct{}

// WithoutPass returns a context for calls and connections for which pass is not
// called: those of the caller that keeps the others waiting. Nothing that outlives
// the call may get it.
func WithoutPass(ctx context.Context) context.Context {
	return context.WithValue(ctx, unguarded{}, true)
}

func (c *Client) guards(ctx context.Context) bool {
	return c.pass != nil && ctx.Value(unguarded{}) == nil
}

func (c *Client) enter(ctx context.Context, call string) (leave func(), err error) {
	if !c.guards(ctx) {
		return func() {}, nil
	}
	return c.pass(ctx, call)
}

// passing returns the interceptor of a link, which calls pass first: waiting for
// it does not count as the guest's time. The call then uses the link of that time:
// its own may have been replaced meanwhile.
func (c *Client) passing(l *link, next ttrpc.UnaryClientInterceptor) ttrpc.UnaryClientInterceptor {
	return func(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
		l.invoke.CompareAndSwap(nil, &invoke)
		if !c.guards(ctx) {
			return next(ctx, req, resp, info, invoke)
		}
		leave, err := c.pass(ctx, "the call "+info.FullMethod)
		if err != nil {
			return err
		}
		defer leave()
		return next(ctx, req, resp, info, *c.links.current().invoke.Load())
	}
}

// SetClock sets the guest's wall clock to the host's, after the machine was
// paused. It does not call pass.
func (c *Client) SetClock(ctx context.Context) error {
	if _, err := c.guest().SetClock(WithoutPass(ctx), &api.SetClockRequest{HostTime: timestamppb.New(time.Now())}); err != nil {
		return fmt.Errorf("set the guest's clock: %w", Err(err))
	}
	return nil
}
