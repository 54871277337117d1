package service

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/agent/network"
)

// nicModule is the driver of the pod's NICs; it is loaded for the first one.
const nicModule = "virtio_net"

// networkApplier is the guest's network.
type networkApplier interface {
	Apply(ctx context.Context, want *api.SetNetworkRequest) (changes []string, err error)
	UseQueues(cpus uint32) error
}

var _ networkApplier = (*network.Network)(nil)

func newNetwork(config Config) networkApplier {
	return network.New(func() error { return config.Mounter.Modules.Demand(nicModule) })
}

// SetNetwork implements the Guest service.
func (s guestService) SetNetwork(ctx context.Context, req *api.SetNetworkRequest) (*api.SetNetworkResponse, error) {
	changes, err := s.pod.setNetwork(ctx, req)
	if err != nil {
		// The error answer has no field for the changes made before it.
		for _, change := range changes {
			log.G(ctx).WithError(err).Warnf("network half set: %s", change)
		}
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.SetNetworkResponse{Changes: changes}, nil
}

// setNetwork configures the guest's network, its hostname last: an invalid
// request changes nothing.
func (p *Pod) setNetwork(ctx context.Context, req *api.SetNetworkRequest) ([]string, error) {
	if err := p.checkOpen(); err != nil {
		return nil, fmt.Errorf("set network: %w", err)
	}
	changes, err := p.network.Apply(ctx, req)
	if err != nil {
		return changes, err
	}
	named, err := p.nameHost(req.GetHostname())
	return append(changes, named...), err
}

// nameHost sets the pod's hostname; an empty name leaves it unchanged. So does the
// name that was requested before: each change of the network repeats it, and a
// privileged container may have set another one since.
func (p *Pod) nameHost(name string) ([]string, error) {
	p.mu.Lock()
	same := name == p.hostname
	p.mu.Unlock()
	if name == "" || same {
		return nil, nil
	}
	changed, err := guest.SetHostname(p.nsPath("uts"), name)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.hostname = name
	p.mu.Unlock()
	if !changed {
		return nil, nil
	}
	return []string{"hostname set to " + name}, nil
}
