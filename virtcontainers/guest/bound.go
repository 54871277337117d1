package guest

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/ttrpc"
)

// CallTimeout bounds a call whose caller set no deadline: some engines wait
// without end, holding a lock, and a guest that answers pings may still never
// answer this call. It is longer than anything that a guest does under load.
const CallTimeout = time.Minute

// bound returns an interceptor that bounds calls without a deadline.
func bound(timeout time.Duration) ttrpc.UnaryClientInterceptor {
	return func(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
		if _, bounded := ctx.Deadline(); bounded {
			return within(ctx, req, resp, invoke)
		}
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		err := within(limited, req, resp, invoke)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("the guest did not answer %s within %v: %w", info.FullMethod, timeout, err)
		}
		return err
	}
}
