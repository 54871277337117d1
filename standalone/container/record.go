package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/standalone/store"
	"github.com/katabox/katabox/standalone/usernet"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// recordFile is the record's file in a container's directory.
const recordFile = "record.json"

// Record is what is saved about a container.
type Record struct {
	Name    string    `json:"name"`
	Image   string    `json:"image"`
	Command []string  `json:"command,omitempty"`
	Created time.Time `json:"created"`
	// Engine is the process that runs it.
	Engine persist.Process `json:"engine"`
	// Remove reports whether it is removed when it ends.
	Remove bool `json:"remove,omitempty"`
	// Network is the program of its network, or "none".
	Network string         `json:"network,omitempty"`
	Ports   []usernet.Port `json:"ports,omitempty"`
	// StopSignal is the signal with which its image is to be stopped; "" is
	// SIGTERM.
	StopSignal string `json:"stop_signal,omitempty"`
	// Started is when it started to run, Exited how it ended, once it has.
	Started *time.Time `json:"started,omitempty"`
	Exited  *Exit      `json:"exited,omitempty"`
	// Warnings are what went wrong beside the command, in order.
	Warnings []string `json:"warnings,omitempty"`
}

// Exit is how a container ended.
type Exit struct {
	Code int       `json:"code"`
	At   time.Time `json:"at"`
}

// State returns the container's state as a word.
func (r *Record) State() string {
	switch {
	case r.Exited != nil:
		return fmt.Sprintf("exited (%d)", r.Exited.Code)
	case !r.Engine.Alive():
		return "dead"
	case r.Started == nil:
		return "starting"
	}
	return "running"
}

// Manager finds and changes the containers of one store.
type Manager struct {
	Store *store.Store
	// Shim is the path of the shim's program.
	Shim string
	// answerTimeout replaces the constant, in tests.
	answerTimeout time.Duration
}

// write replaces the container's record; after a crash it is the old or the new
// one.
func (m *Manager) write(r *Record) error {
	return store.WriteJSON(filepath.Join(m.Store.ContainerDir(r.Name), recordFile), r)
}

// Load reads a container's record. It fails with errdefs.ErrNotFound if there is none
// with that name.
func (m *Manager) Load(name string) (*Record, error) {
	if err := store.CheckName(name); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(m.Store.ContainerDir(name), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("container %s: %w", name, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read container's record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read record of container %s: %w", name, err)
	}
	return &r, nil
}

// List returns the records of all containers, by name. A container that is
// removed meanwhile is left out.
func (m *Manager) List() ([]*Record, error) {
	names, err := m.Store.Containers()
	if err != nil {
		return nil, err
	}
	var records []*Record
	for _, name := range names {
		r, err := m.Load(name)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// readSpec reads the specification that the container runs with.
func (m *Manager) readSpec(name string) (*specs.Spec, error) {
	data, err := os.ReadFile(filepath.Join(m.Store.ContainerDir(name), specFile))
	if err != nil {
		return nil, fmt.Errorf("read specification: %w", err)
	}
	var s specs.Spec
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read specification of container %s: %w", name, err)
	}
	return &s, nil
}

// specFile is the specification's file in a bundle.
const specFile = "config.json"
