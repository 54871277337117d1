package oci

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/shim/client"
)

// joinByStandIn replaces, in the path of the PID namespace that a container is
// to join, the monitor of another container of its pod by that one's stand-in.
// The monitor is the pid that the engine was told, and is in the host's PID
// namespace; the stand-in is the pid by which the shim knows the container. A
// path that names anything else stays as it is.
func (r *Runtime) joinByStandIn(ctx context.Context, rec *record, spec *specs.Spec) error {
	for i, ns := range spec.Linux.Namespaces {
		if ns.Type != specs.PIDNamespace || ns.Path == "" {
			continue
		}
		other, err := r.monitored(rec, ns.Path)
		if err != nil || other == nil {
			return err
		}
		pid, err := r.standIn(ctx, other.ID)
		if err != nil {
			return fmt.Errorf("join the PID namespace of container %s: %w", other.ID, err)
		}
		spec.Linux.Namespaces[i].Path = pidNamespace(pid)
	}
	return nil
}

// monitored is the container of rec's pod whose monitor's PID namespace has the
// path, or nil.
func (r *Runtime) monitored(rec *record, path string) (*record, error) {
	ids, err := r.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		other, err := r.load(id)
		if err != nil || other.SandboxID != rec.SandboxID || id == rec.ID {
			continue // one that is being made or removed has no monitor to join
		}
		if path == pidNamespace(other.Monitor.PID) && other.Monitor.Alive() {
			return other, nil
		}
	}
	return nil, nil
}

// standIn is the pid by which the shim knows a container.
func (r *Runtime) standIn(ctx context.Context, id string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	shim, err := client.Connect(ctx, r.dir(id))
	if err != nil {
		return 0, err
	}
	defer shim.Close()
	resp, err := shim.State(ctx, &task.StateRequest{ID: id})
	if err != nil {
		return 0, err
	}
	return int(resp.Pid), nil
}

// pidNamespace is how engines name a process's PID namespace (proc(5)).
func pidNamespace(pid int) string { return fmt.Sprintf("/proc/%d/ns/pid", pid) }
