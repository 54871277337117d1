package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/katabox/katabox/agent/api"
)

// AddStorages implements the Guest service.
func (s guestService) AddStorages(ctx context.Context, req *api.AddStoragesRequest) (*api.AddStoragesResponse, error) {
	if err := s.pod.addStorages(ctx, req.GetStorages()); err != nil {
		return nil, statusOf(err)
	}
	return &api.AddStoragesResponse{}, nil
}

// addStorages mounts those of the pod's storages that are not mounted. If one
// cannot be mounted, those that this call has mounted are unmounted: calls are
// serialized, so nothing uses them yet.
func (p *Pod) addStorages(ctx context.Context, storages []*api.Storage) error {
	if err := p.checkOpen(); err != nil {
		return fmt.Errorf("add storages: %w", err)
	}
	release, err := p.holdMounts(ctx)
	if err != nil {
		return err
	}
	defer release()
	if p.amongFiles(storages) {
		if err := p.mountFilesAlone(ctx); err != nil { // Mounted later, it would hide them.
			return err
		}
	}
	return p.mountMissing(ctx, storages)
}

// mountStorages mounts a container's storages.
func (p *Pod) mountStorages(ctx context.Context, storages []*api.Storage) error {
	if p.amongFiles(storages) {
		if err := p.mountFiles(ctx); err != nil { // Mounted later, it would hide them.
			return err
		}
	}
	return p.disks.Mount(ctx, storages)
}

// amongFiles reports whether the target of one of the storages is among the
// copies of files.
func (p *Pod) amongFiles(storages []*api.Storage) bool {
	return slices.ContainsFunc(storages, func(s *api.Storage) bool {
		return strings.HasPrefix(s.GetTarget(), filesDir(p.config)+"/")
	})
}

// mountMissing mounts the storages whose targets are not mounted: all of them,
// or none. The caller holds the mounts.
func (p *Pod) mountMissing(ctx context.Context, storages []*api.Storage) error {
	var missing []*api.Storage
	wanted := map[string]bool{}
	for _, s := range storages {
		mounted, err := p.disks.Mounted(s.GetTarget())
		if err != nil {
			return err
		}
		if !mounted && !wanted[s.GetTarget()] {
			wanted[s.GetTarget()] = true
			missing = append(missing, s)
		}
	}
	return p.disks.Mount(ctx, missing)
}

// holdMounts waits until no other call mounts the pod's storages, and blocks
// others until release is called.
func (p *Pod) holdMounts(ctx context.Context) (release func(), err error) {
	if err := p.mounting.Lock(ctx); err != nil {
		return nil, fmt.Errorf("wait for other storages: %w", err)
	}
	return p.mounting.Unlock, nil
}
