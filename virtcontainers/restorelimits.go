package virtcontainers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// limitRestored gives a restored container its own spec's limits in the guest, while
// its processes are frozen. The machine has been made large enough for them. Limits
// that the spec does not set stay the saved container's, as in an update.
func (c *Container) limitRestored(ctx context.Context) error {
	own := c.Bundle.Spec.Linux
	if c.restored == nil || own == nil || own.Resources == nil {
		return nil
	}
	limits := *own.Resources
	limits.Devices = nil // An update does not change which devices are allowed.
	encoded, err := json.Marshal(&limits)
	if err != nil {
		return fmt.Errorf("encode the limits of its spec: %w", err)
	}
	req := &task.UpdateTaskRequest{ID: c.ID, Resources: &anypb.Any{Value: encoded}}
	if _, err := c.sandbox.client.Task().Update(ctx, req); err != nil {
		return fmt.Errorf("set the limits of its spec: %w", guest.Err(err))
	}
	c.warnOfLost(ctx, guestspec.LostLimits(&limits))
	return nil
}
