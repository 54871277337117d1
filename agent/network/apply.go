package network

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// Network is the guest's network as the host wants it. The zero value is
// ready; its methods may be called from several goroutines.
type Network struct{}

// Apply makes the guest's network what want says and tells what it changed.
func (n *Network) Apply(_ context.Context, want *api.SetNetworkRequest) (changes []string, err error) {
	if len(want.GetInterfaces()) > 0 {
		return nil, fmt.Errorf("set network: %w", errdefs.ErrNotImplemented)
	}
	return nil, nil
}
