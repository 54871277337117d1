package oci

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/shim/client"
)

// joinByStandIn changes the path of the PID namespace that a container is to
// join: if it names the monitor of another container of the pod, it will name
// that container's stand-in. The engine was told the monitor's pid, whose PID
// namespace is the host's; the shim knows the container by the stand-in's pid.
// Any other path stays as it is.
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

// monitored returns the container of rec's pod whose monitor's PID namespace has
// that path, or nil.
func (r *Runtime) monitored(rec *record, path string) (*record, error) {
	ids, err := r.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		other, err := r.load(id)
		if err != nil || other.SandboxID != rec.SandboxID || id == rec.ID {
			continue // a container that is being made or removed has no monitor to join
		}
		if path == pidNamespace(other.Monitor.PID) && other.Monitor.Alive() {
			return other, nil
		}
	}
	return nil, nil
}

// standIn returns the pid by which the shim knows a container.
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

// pidNamespace is the path by which engines name a process's PID namespace
// (proc(5)).
func pidNamespace(pid int) string { return fmt.Sprintf("/proc/%d/ns/pid", pid) }
