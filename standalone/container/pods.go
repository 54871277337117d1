package container

import (
	"fmt"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// sandboxesDir is where shims keep their pods' records.
const sandboxesDir = "/run/kata-containers/sandboxes"

// Pod is a pod of another engine.
type Pod struct {
	ID       string
	Shim, VM int // process ids; 0 while there is none
	Alive    bool
}

// OtherPods lists the host's pods that are not containers of this store. They
// belong to engines: this package only reads their records.
func (m *Manager) OtherPods() ([]Pod, error) {
	all, err := persist.List(sandboxesDir)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var pods []Pod
	for _, r := range all {
		if m.owns(r) {
			continue
		}
		pods = append(pods, Pod{ID: r.SandboxID, Shim: r.Shim.PID, VM: r.VM.PID, Alive: r.Shim.Alive()})
	}
	return pods, nil
}

// owns reports whether a record belongs to a container of this store.
func (m *Manager) owns(r *persist.Record) bool {
	if r.Owner != (persist.Owner{}) {
		return r.Owner == m.program(r.SandboxID).Owner()
	}
	_, err := m.Load(r.SandboxID) // its shim kept records by the id alone
	return err == nil
}
