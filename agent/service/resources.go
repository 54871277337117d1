package service

import (
	"context"
	"errors"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// resources are the guest's CPUs, memory and late devices.
type resources interface {
	Online(ctx context.Context, want guest.Amount) (guest.Amount, error)
	LoadLateDrivers() error
	PreloadLateDrivers() error
}

var _ resources = (*guest.Resources)(nil)

// SetResources implements the Guest service. Less than requested is not an
// error: the host compares.
func (s guestService) SetResources(ctx context.Context, req *api.SetResourcesRequest) (*api.SetResourcesResponse, error) {
	want := guest.Amount{CPUs: req.GetCpus(), MemoryMiB: req.GetMemoryMib()}
	have, err := s.pod.machine.Online(ctx, want)
	if err != nil {
		if have == (guest.Amount{}) {
			return nil, errgrpc.ToGRPC(err)
		}
		log.G(ctx).WithError(err).Warn("fewer resources than the host has given")
	}
	if err := s.pod.config.Runtime.LimitThreads(guest.ReservedThreads); err != nil {
		log.G(ctx).WithError(err).Warn("the containers may have no more threads than before")
	}
	if err := s.pod.network.UseQueues(have.CPUs); err != nil {
		log.G(ctx).WithError(err).Warn("the network does not use all CPUs")
	}
	return &api.SetResourcesResponse{Cpus: have.CPUs, MemoryMib: have.MemoryMiB}, nil
}

// LimitContainers implements the Guest service.
func (s guestService) LimitContainers(_ context.Context, req *api.LimitContainersRequest) (*api.LimitContainersResponse, error) {
	runtime := s.pod.config.Runtime
	if err := errors.Join(runtime.LimitMemory(req.GetMemory()), runtime.LimitPodThreads(req.GetThreads())); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.LimitContainersResponse{}, nil
}

// loadLateDrivers loads the drivers that are deferred until the first container
// runs. The pod works without them, so failures are only logged.
func (p *Pod) loadLateDrivers(ctx context.Context) {
	if err := p.machine.LoadLateDrivers(); err != nil {
		log.G(ctx).WithError(err).Warn("a device of the machine has no driver")
	}
}
