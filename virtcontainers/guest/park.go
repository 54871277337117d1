package guest

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// Park has the guest end the connections of all stdio; inputs are those that are
// bound and have not ended. It does not call pass. It may be called again.
func (c *Client) Park(ctx context.Context, inputs []*api.ParkedInput) error {
	if _, err := c.guest().Park(WithoutPass(ctx), &api.ParkRequest{Inputs: inputs}); err != nil {
		return fmt.Errorf("park the guest's stdio: %w", Err(err))
	}
	return nil
}

// Rejoin gives a restored guest to this sandbox; req says what has changed for
// it. As in SetupSandbox, random bytes are drawn and the host's time is read here.
// It does not call pass.
func (c *Client) Rejoin(ctx context.Context, req *api.RejoinRequest) error {
	req.Entropy, req.HostTime = entropy(), timestamppb.Now()
	if _, err := c.guest().Rejoin(WithoutPass(ctx), req); err != nil {
		return fmt.Errorf("give the guest to another sandbox: %w", Err(err))
	}
	return nil
}
