package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/internal/regular"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// Restoration is a checkpoint from which a sandbox starts instead of booting. The
// sandbox's own container is the saved one.
type Restoration struct {
	from *checkpoint.Reader
	file *os.File
	// request describes the container that continues from the saved one.
	request guestfs.Request
	// files are its files, from when the sandbox has a share until its creation.
	files *guestfs.Container
}

// OpenRestoration opens the checkpoint in a directory for the container that
// opts describe. The caller closes it when the container was created. The key is
// the configuration's. ctx bounds the call, because the disk may hang.
func OpenRestoration(ctx context.Context, dir string, cfg *config.Config, opts ContainerOptions) (*Restoration, error) {
	key, err := checkpointKey(ctx, cfg.Runtime.CheckpointKeyFile)
	var r *Restoration
	if err == nil {
		open := func() (*Restoration, error) { return openRestoration(dir, key, opts) }
		r, err = intime.Call(ctx, open, (*Restoration).Close)
	}
	if err != nil {
		return nil, fmt.Errorf("restore container %s from %s: %w", opts.ID, dir, err)
	}
	return r, nil
}

func openRestoration(dir string, key checkpoint.Key, opts ContainerOptions) (*Restoration, error) {
	file, err := regular.Open(filepath.Join(dir, checkpoint.File)) // a checkpoint may come from anywhere
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("it is not a checkpoint of this runtime: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	from, err := checkpoint.Open(file, key)
	if err == nil {
		err = checkSaved(from.Record.Container, opts)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Restoration{from: from, file: file, request: guestfs.Request{
		ID: opts.ID, Bundle: opts.Bundle, Rootfs: opts.Rootfs,
		ShareID: from.Record.Container.ShareID, Saved: from.Record.Container.Mounts,
	}}, nil
}

// checkSaved compares a saved container with the one that is to continue from it.
func checkSaved(saved checkpoint.Container, opts ContainerOptions) error {
	if err := errors.Join(bundle.CheckID(saved.ID), bundle.CheckID(saved.ShareID)); err != nil {
		return fmt.Errorf("the saved container: %w", err)
	}
	if saved.Terminal != opts.Terminal {
		return fmt.Errorf("the saved container has a terminal: %t, this one: %t: %w", saved.Terminal, opts.Terminal, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// Close closes the checkpoint. It may be called for nil, and does not wait for the
// disk: the file was only read.
func (r *Restoration) Close() {
	if r != nil {
		go r.file.Close()
	}
}

// of returns the restoration of that container of a sandbox, nil if it is none.
func (r *Restoration) of(id string) *Restoration {
	if r == nil || r.request.ID != id {
		return nil
	}
	return r
}

// keeps reports whether the restored container has the directories, in the share and in
// the guest, of a container with that id. It may be called for nil.
func (r *Restoration) keeps(id string) bool { return r != nil && r.request.ShareID == id }

// most returns how large the saved machine could become; nil if that is not known. It
// may be called for nil.
func (r *Restoration) most() *sizing.Most {
	if r == nil || r.from.Record.Machine.MaxVCPUs == 0 {
		return nil
	}
	m := r.from.Record.Machine
	return &sizing.Most{VCPUs: m.MaxVCPUs, MemoryMiB: m.MaxMemoryMiB}
}

// restoring returns the steps in the order in which a sandbox continues from a saved
// one. The machine's files are there before its state is, because the share's server
// opens them again then. The devices that were taken before it was saved come after.
func (s *Sandbox) restoring(p *plan) []step {
	files := step{"files", s.openSavedFiles, func(ctx context.Context) error { return s.opts.Restore.files.Release(ctx) }}
	load := step{"load", s.loadSaved, nil}
	p.vm.do, p.guest.do = s.launchAwaiting, s.rejoin
	return []step{
		p.state, p.netns, p.cgroup, p.standIns, p.share, files, p.user, p.vm, p.storage, p.hardware, p.account, load,
		p.vsock, p.network, p.podStandIn, p.resume, p.agent, p.charge, p.forward, p.guest, p.management,
	}
}

// openSavedFiles puts the container's files where the saved one's were.
func (s *Sandbox) openSavedFiles(ctx context.Context) error {
	r := s.opts.Restore
	r.files = s.files.Container(r.request)
	for _, part := range r.files.Steps() {
		if err := part.Do(ctx); err != nil {
			return err
		}
	}
	if err := r.files.CheckSaved(); err != nil {
		return errors.Join(err, r.files.Release(ctx))
	}
	return nil
}

// launchAwaiting starts a machine that awaits the saved one's state.
func (s *Sandbox) launchAwaiting(ctx context.Context) error {
	saved := &s.opts.Restore.from.Record.Machine.Layout
	if err := s.sizing.Continue(*saved); err != nil {
		return err
	}
	spec := s.loggedSpec(ctx)
	spec.Awaits = saved
	return s.start(ctx, spec, s.platform.Monitor.Launch)
}

// loadSaved makes the machine the saved one.
func (s *Sandbox) loadSaved(ctx context.Context) error {
	saved := s.opts.Restore.from
	has, err := s.describeMachine(ctx)
	if err == nil {
		err = saved.Record.Machine.Check(has)
	}
	if err != nil {
		return err
	}
	if !maps.Equal(saved.Record.Machine.Layout.Devices, has.Layout.Devices) {
		return fmt.Errorf("the saved machine has the devices %v, this one %v (the configuration has changed?): %w",
			slices.Sorted(maps.Keys(saved.Record.Machine.Layout.Devices)), slices.Sorted(maps.Keys(has.Layout.Devices)), errdefs.ErrFailedPrecondition)
	}
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	if err := loadFrom(ctx, s.vm, saved); err != nil {
		return s.files.ExplainState(err)
	}
	thin(ctx, s.vm)
	return nil
}

// loadFrom passes the saved machine's state to the VMM. A reader that hangs with
// its disk is left to itself when ctx ends.
func loadFrom(ctx context.Context, vm hypervisor.VM, saved *checkpoint.Reader) error {
	machine, state, err := os.Pipe()
	if err != nil {
		return err
	}
	closeState := sync.OnceValue(state.Close)
	defer context.AfterFunc(ctx, func() { _ = closeState() })()
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(state, saved)
		read <- errors.Join(err, closeState())
	}()
	err = vm.LoadAll(ctx, machine)
	err = errors.Join(err, machine.Close()) // without a reader the copying ends
	select {
	case readErr := <-read:
		if err != nil && errors.Is(readErr, syscall.EPIPE) {
			return err // the VMM did not read on
		}
		return errors.Join(readErr, err)
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}

// rejoin makes the guest this sandbox's.
func (s *Sandbox) rejoin(ctx context.Context) error {
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	req := &api.RejoinRequest{}
	if from := s.opts.Restore.from.Record.Container.ID; from != s.ID {
		req.Containers = []*api.RenamedContainer{{From: from, To: s.ID}}
	}
	err := s.client.Rejoin(ctx, req)
	if err == nil {
		err = s.network.Tell(ctx)
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	return nil
}
