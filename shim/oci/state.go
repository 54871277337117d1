package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// The states that commands report: those of the OCI runtime specification, and
// paused.
const (
	Creating = specs.StateCreating
	Created  = specs.StateCreated
	Running  = specs.StateRunning
	Stopped  = specs.StateStopped
	Paused   = specs.ContainerState("paused")
)

// State is the output of state and list, with runc's field names.
type State struct {
	Version string `json:"ociVersion"`
	ID      string `json:"id"`
	// PID is the monitor's pid; 0 until the container is created, and once it has stopped.
	PID         int                  `json:"pid"`
	Status      specs.ContainerState `json:"status"`
	Bundle      string               `json:"bundle"`
	Rootfs      string               `json:"rootfs"`
	Created     time.Time            `json:"created"`
	Annotations map[string]string    `json:"annotations,omitempty"`
	// Owner is the owner of the container's directory in a list, otherwise "".
	Owner string `json:"owner"`
}

// State describes a container.
func (r *Runtime) State(ctx context.Context, id string) (*State, error) {
	rec, err := r.load(id)
	if err != nil {
		return nil, err
	}
	b, err := bundle.Load(r.dir(id))
	if err != nil {
		return nil, err
	}
	now, err := r.status(ctx, rec)
	if err != nil {
		return nil, err
	}
	s := &State{
		Version: specs.Version, ID: rec.ID, Status: now, Bundle: rec.Bundle, Rootfs: rec.Rootfs,
		Created: rec.Created, Annotations: b.Spec.Annotations,
	}
	if now != Stopped {
		s.PID = rec.Monitor.PID
	}
	return s, nil
}

// status asks the container's shim; a container without a shim has stopped, unless it is
// being created.
func (r *Runtime) status(ctx context.Context, rec *record) (specs.ContainerState, error) {
	if rec.creating {
		return Creating, nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.answerTimeout, answerTimeout))
	defer cancel()
	shim, err := client.Connect(ctx, r.dir(rec.ID))
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return Stopped, nil
	}
	if err != nil {
		return "", err
	}
	defer shim.Close()
	return status(ctx, shim, rec)
}

// status returns the state of a container. A container whose monitor is dead is
// about to be killed, if it has not ended.
func status(ctx context.Context, shim *client.Shim, rec *record) (specs.ContainerState, error) {
	if rec.creating {
		return Creating, nil
	}
	resp, err := shim.State(ctx, &task.StateRequest{ID: rec.ID})
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) || err == nil && !rec.Monitor.Alive() {
		return Stopped, nil
	}
	if err != nil {
		return "", err
	}
	switch resp.Status {
	case tasktypes.Status_CREATED:
		return Created, nil
	case tasktypes.Status_RUNNING:
		return Running, nil
	case tasktypes.Status_PAUSED, tasktypes.Status_PAUSING:
		return Paused, nil
	case tasktypes.Status_STOPPED:
		return Stopped, nil
	case tasktypes.Status_UNKNOWN:
	}
	return "", fmt.Errorf("shim answers with status %v", resp.Status)
}

// maxAsked bounds how many shims are asked concurrently.
const maxAsked = 32

// List describes all containers. A container that disappears meanwhile is left out.
// One whose shim does not answer is an error, and does not keep the others out.
func (r *Runtime) List(ctx context.Context) ([]*State, error) {
	ids, err := r.ids()
	if err != nil {
		return nil, err
	}
	found, errs := make([]*State, len(ids)), make([]error, len(ids))
	var all sync.WaitGroup
	slots := make(chan struct{}, maxAsked)
	for i, id := range ids {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			found[i], errs[i] = r.listed(ctx, id)
		})
	}
	all.Wait()
	states := slices.DeleteFunc(found, func(s *State) bool { return s == nil })
	return states, errors.Join(errs...)
}

// listed describes a container for a list, or returns nil if it has disappeared.
func (r *Runtime) listed(ctx context.Context, id string) (*State, error) {
	s, err := r.State(ctx, id)
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("container %s: %w", id, err)
	}
	s.Owner = ownerOf(r.dir(id))
	return s, nil
}

// ownerOf returns the name of a directory's owner, or "#" and the number if it has
// no name; "" if the directory is gone.
func ownerOf(dir string) string {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return ""
	}
	uid := strconv.FormatUint(uint64(stat.Uid), 10)
	if owner, err := user.LookupId(uid); err == nil {
		return owner.Username
	}
	return "#" + uid
}

// Pids returns the processes on the host that represent the container's: its
// monitor, and those of its execs.
func (r *Runtime) Pids(ctx context.Context, id string) ([]int, error) {
	rec, err := r.load(id)
	if err != nil {
		return nil, err
	}
	now, err := r.status(ctx, rec)
	if err != nil {
		return nil, err
	}
	pids := []int{}
	if now != Stopped && now != Creating {
		pids = append(pids, rec.Monitor.PID)
	}
	return append(pids, r.execPids(id)...), nil
}
