package service

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/agent/network"
)

// nicModule drives the pod's NICs; it is loaded with the first one.
const nicModule = "virtio_net"

// SetNetwork implements the Guest service.
func (s guestService) SetNetwork(ctx context.Context, req *api.SetNetworkRequest) (*api.SetNetworkResponse, error) {
	changes, err := s.pod.setNetwork(ctx, req)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.SetNetworkResponse{Changes: changes}, nil
}

// setNetwork makes the guest's network what the host wants. Calls are served
// one after the other.
func (p *Pod) setNetwork(ctx context.Context, req *api.SetNetworkRequest) ([]string, error) {
	p.mu.Lock()
	ready := p.ready
	p.mu.Unlock()
	if !ready {
		return nil, fmt.Errorf("set network: the sandbox is not set up: %w", errdefs.ErrFailedPrecondition)
	}
	changes, err := p.nameHost(req.GetHostname())
	if err != nil {
		return nil, err
	}
	if len(req.GetInterfaces()) > 0 {
		if err := p.config.Mounter.Modules.Demand(nicModule); err != nil {
			return nil, err
		}
	}
	applied, err := p.network.Apply(ctx, req)
	return append(changes, applied...), err
}

// nameHost names the pod; an empty name leaves the kernel's.
func (p *Pod) nameHost(name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	changed, err := guest.SetHostname(p.nsPath("uts"), name)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.hostname = true
	p.mu.Unlock()
	if !changed {
		return nil, nil
	}
	return []string{"hostname set to " + name}, nil
}

var _ networkApplier = (*network.Network)(nil)

// networkApplier is the guest's network.
type networkApplier interface {
	Apply(ctx context.Context, want *api.SetNetworkRequest) (changes []string, err error)
}
