package guest

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// Pass lets a call to the guest pass. It waits, within ctx, for a guest that does
// not run; leave must follow the call.
type Pass func(ctx context.Context) (leave func(), err error)

// Guard has pass called before each later call, and before each later connection
// is made. It must itself be called before the Client has several users.
func (c *Client) Guard(pass Pass) { c.pass = pass }

// unguarded marks the context of a call for which pass is not called.
type unguarded struct{}

func (c *Client) enter(ctx context.Context) (leave func(), err error) {
	if c.pass == nil || ctx.Value(unguarded{}) != nil {
		return func() {}, nil
	}
	return c.pass(ctx)
}

// passing returns an interceptor that calls pass first: waiting for it does not
// count as the guest's time.
func (c *Client) passing(next ttrpc.UnaryClientInterceptor) ttrpc.UnaryClientInterceptor {
	return func(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
		leave, err := c.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		return next(ctx, req, resp, info, invoke)
	}
}

// SetClock sets the guest's wall clock to the host's, after the machine was
// paused. It does not call pass.
func (c *Client) SetClock(ctx context.Context) error {
	ctx = context.WithValue(ctx, unguarded{}, true)
	if _, err := c.guest.SetClock(ctx, &api.SetClockRequest{HostTime: timestamppb.New(time.Now())}); err != nil {
		return fmt.Errorf("set the guest's clock: %w", Err(err))
	}
	return nil
}
