package main

import (
	"context"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/forward"
	"github.com/katabox/katabox/virtcontainers/network"
)

// podNetwork gives package network's Network the types that virtcontainers
// knows.
type podNetwork struct{ *network.Network }

// Plug implements virtcontainers.Network.
func (n podNetwork) Plug(ctx context.Context, vm hypervisor.VM) error { return n.Network.Plug(ctx, vm) }

func openNetwork(_ context.Context, cfg *config.Config, o virtcontainers.NetworkOptions) (virtcontainers.Network, error) {
	n, err := network.Open(network.Options{
		Namespace: o.Namespace,
		Model:     network.Model(cfg.Runtime.NetworkModel),
		Queues:    o.Queues,
		VhostNet:  !cfg.Hypervisor.DisableVhostNet,
		RxRate:    cfg.Hypervisor.RxMaxRate,
		TxRate:    cfg.Hypervisor.TxMaxRate,
		Save:      o.Save,
	})
	if err != nil {
		return nil, err
	}
	return podNetwork{n}, nil
}

func openForward(ctx context.Context, namespace string, dial virtcontainers.ForwardFunc) (virtcontainers.Forwarder, error) {
	f, err := forward.Open(ctx, namespace, forward.DialFunc(dial))
	if err != nil {
		return nil, err
	}
	return f, nil
}
