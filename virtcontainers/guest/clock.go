package guest

import (
	"context"
	"fmt"
	"time"

	"github.com/katabox/katabox/agent/api"
)

// AdjustClock adds a correction to the guest's wall clock, at once (step) or
// gradually; 0 changes nothing. It returns what the clock showed then, as the guest
// says: any time. An agent that cannot do this fails with errdefs.ErrNotImplemented.
func (c *Client) AdjustClock(ctx context.Context, by time.Duration, step bool) (time.Time, error) {
	resp, err := c.guest().AdjustClock(ctx, &api.AdjustClockRequest{CorrectionUs: by.Microseconds(), Step: step})
	if err != nil {
		return time.Time{}, fmt.Errorf("adjust the guest's clock: %w", Err(err))
	}
	if !resp.GetNow().IsValid() {
		return time.Time{}, fmt.Errorf("adjust the guest's clock: its answer has no valid time: %v", resp.GetNow())
	}
	return resp.GetNow().AsTime(), nil
}
