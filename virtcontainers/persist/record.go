package persist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Version is the record's format. A reader refuses any other: the pod was made
// by a shim of another release.
const Version = 1

// Record has everything that a pod has made on its host.
type Record struct {
	Version   int    `json:"version"`
	SandboxID string `json:"sandbox_id"`
	// Owner is the pod's owner; zero in records of older shims.
	Owner Owner `json:"owner,omitzero"`
	// Shim, VM and FSDaemon are the pod's processes.
	Shim     Process `json:"shim"`
	VM       Process `json:"vm"`
	FSDaemon Process `json:"fs_daemon"`
	// StandIns are the stand-ins of the pod's containers, by the containers'
	// ids.
	StandIns map[string]Process `json:"stand_ins,omitempty"`
	// MemoryDir is the directory of the files that are the machine's memory, made
	// for the pod.
	MemoryDir string `json:"memory_dir,omitempty"`
	// NetNS is the pod's network namespace, and Network what was made in it, in
	// the format of the package that made it.
	NetNS   string          `json:"netns,omitempty"`
	Network json.RawMessage `json:"network,omitempty"`
	// Cgroups are the directories of the pod's cgroups on the host
	// (hostcgroup.Remove).
	Cgroups []string `json:"cgroups,omitempty"`
	// StandInCgroups are those of the containers' stand-ins, by the
	// containers' ids (hostcgroup.RemoveContainer).
	StandInCgroups map[string]string `json:"stand_in_cgroups,omitempty"`
}

// Store keeps one pod's record. Its methods may be called from several
// goroutines.
type Store struct {
	dir string

	mu      sync.Mutex // guards what follows, and the file
	rec     Record
	removed bool
}

// Create makes the record of a new pod below root. An older one of the same
// owner and id is replaced: its shim must have been cleaned up before. On an error
// there is none.
func Create(root string, owner Owner, sandboxID string) (*Store, error) {
	s := &Store{
		dir: filepath.Join(root, owner.Name(sandboxID)),
		rec: Record{Version: Version, SandboxID: sandboxID, Owner: owner},
	}
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil {
		err = os.Remove(filepath.Join(s.dir, removalFile))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make sandbox state: %w", err)
	}
	if err := s.Update(func(*Record) {}); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// Update changes the record and writes it; change must not block. After
// Remove it fails with errdefs.ErrFailedPrecondition.
func (s *Store) Update(change func(*Record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return fmt.Errorf("write sandbox state of %s: it was removed: %w", s.rec.SandboxID, errdefs.ErrFailedPrecondition)
	}
	change(&s.rec)
	data, err := json.MarshalIndent(&s.rec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode sandbox state: %w", err)
	}
	if err := writeAtomic(filepath.Join(s.dir, fileName), data); err != nil {
		return fmt.Errorf("write sandbox state: %w", err)
	}
	return nil
}

// UpdateWith changes the record, passing the identity of the running process
// pid.
func (s *Store) UpdateWith(pid int, change func(*Record, Process)) error {
	p, err := Identify(pid)
	if err != nil {
		return err
	}
	return s.Update(func(r *Record) { change(r, p) })
}

// Remove removes the record.
func (s *Store) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
	return removeDir(s.dir)
}

const fileName = "state.json"

// Load reads the record of that name (Owner.Name). It fails with fs.ErrNotExist
// when there is none.
func Load(root, name string) (*Record, error) {
	data, err := os.ReadFile(filepath.Join(root, name, fileName))
	if err != nil {
		return nil, fmt.Errorf("read sandbox state: %w", err)
	}
	var rec Record
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, fmt.Errorf("read sandbox state of %s: %w", name, err)
	}
	if rec.Version != Version {
		return nil, fmt.Errorf("read sandbox state of %s: format version %d, want %d", name, rec.Version, Version)
	}
	return &rec, nil
}

// BeginRemoval marks the record of that name (Owner.Name), if there is one: what
// it names is being removed. Abandoned finds those that kept the mark.
func BeginRemoval(root, name string) error {
	err := os.WriteFile(filepath.Join(root, name, removalFile), nil, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removalFile marks a record, and its time is when the removal began last.
const removalFile = "removing"

// Remove removes the record of that name (Owner.Name). It is no error if there
// is none.
func Remove(root, name string) error {
	return removeDir(filepath.Join(root, name))
}

// removeTries is how often a removal is tried: an engine deletes all containers of
// a dead shim at once, and each of these deletes, which are processes, may add its
// mark (BeginRemoval) once while another removes the directory.
const removeTries = 1000

func removeDir(dir string) (err error) {
	for range removeTries {
		if err = os.RemoveAll(dir); !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("remove sandbox state: %w", err)
	}
	return nil
}

func writeAtomic(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".state-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // has no effect after the rename
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
