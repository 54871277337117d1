package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// recordFile is a container's record in its directory.
const recordFile = "record.json"

// record is what is saved of a container besides its spec.
type record struct {
	ID string `json:"id"`
	// Bundle is the engine's bundle.
	Bundle  string    `json:"bundle"`
	Rootfs  string    `json:"rootfs"`
	Created time.Time `json:"created"`
	// Monitor represents the container's init; it is the zero value until create
	// is about to end.
	Monitor persist.Process `json:"monitor"`
	// Creator is the process that creates the container. It is the zero value once Monitor
	// is set, and in records of older versions.
	Creator persist.Process `json:"creator,omitzero"`
	// creating is set by load if the container was being created then.
	creating bool
	// SandboxID is the id of the container in whose machine it runs.
	SandboxID string `json:"sandbox_id"`
}

// Runtime is the OCI runtime below one root directory.
type Runtime struct {
	// Root holds a directory for each container. It is absolute.
	Root string
	// Program is the shim's path.
	Program string
	// Pods is where shims keep their pods' records.
	Pods string
	// Debug makes the shims log more.
	Debug bool
	// answerTimeout is for tests; 0 is the constant of that name.
	answerTimeout time.Duration
}

// dir is the container's directory.
func (r *Runtime) dir(id string) string { return filepath.Join(r.Root, id) }

// Has reports whether there is a container of that id.
func (r *Runtime) Has(id string) bool {
	_, err := r.load(id)
	return err == nil
}

// load reads a container's record. That of a creator which has ended is read again: the
// creator may have saved its last one meanwhile.
func (r *Runtime) load(id string) (*record, error) {
	rec, err := r.read(id)
	if err != nil || rec.Creator == (persist.Process{}) {
		return rec, err
	}
	if rec.creating = rec.Creator.Alive(); rec.creating {
		return rec, nil
	}
	return r.read(id)
}

// read reads a container's record once.
func (r *Runtime) read(id string) (*record, error) {
	if err := bundle.CheckID(id); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(r.dir(id), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("container does not exist: %w", errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read record of container %s: %w", id, err)
	}
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, fmt.Errorf("decode record of container %s: %w", id, err)
	}
	return &rec, nil
}

// save replaces a container's record.
func (r *Runtime) save(rec *record) error {
	data, err := json.Marshal(rec)
	if err == nil {
		err = replaceFile(filepath.Join(r.dir(rec.ID), recordFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("save record of container %s: %w", rec.ID, err)
	}
	return nil
}

// replaceFile writes a file so that a reader sees the old one, none, or all of
// the new one.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// ids returns the ids of the containers that have a directory.
func (r *Runtime) ids() ([]string, error) {
	entries, err := os.ReadDir(r.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && bundle.CheckID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
