package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// sandboxesDir is where shims keep their pods' records.
const sandboxesDir = "/run/kata-containers/sandboxes"

// Pod is a pod of another engine's.
type Pod struct {
	ID       string
	Shim, VM int // process ids; 0 while there is none
	Alive    bool
}

// OtherPods lists the host's pods that are no containers of this store. They
// belong to engines: this package only looks at them.
func (m *Manager) OtherPods() ([]Pod, error) {
	entries, err := os.ReadDir(sandboxesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var pods []Pod
	for _, e := range entries {
		if _, err := m.Load(e.Name()); err == nil {
			continue
		}
		r, err := persist.Load(sandboxesDir, e.Name())
		if err != nil {
			continue // it has just ended, or begun
		}
		pods = append(pods, Pod{ID: r.SandboxID, Shim: r.Shim.PID, VM: r.VM.PID, Alive: r.Shim.Alive()})
	}
	return pods, nil
}
