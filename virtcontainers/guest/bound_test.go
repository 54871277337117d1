package guest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/ttrpc"
)

// silent is a guest that answers nothing.
func silent(ctx context.Context, _ *ttrpc.Request, _ *ttrpc.Response) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCallsAreBounded(t *testing.T) {
	for _, test := range []struct {
		name       string
		own, takes time.Duration // own is the caller's bound; 0 is none
	}{{"without a bound", 0, CallTimeout}, {"with a longer one", time.Hour, time.Hour}, {"with a shorter one", time.Second, time.Second}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				if test.own > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.own)
					defer cancel()
				}
				begin := time.Now()
				err := bound(CallTimeout)(ctx, nil, nil, &ttrpc.UnaryClientInfo{FullMethod: "/x/Start"}, silent)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != test.takes {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
			})
		})
	}
}
