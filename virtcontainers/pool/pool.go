package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// The names in the directory; see doc.go.
const (
	sparePrefix = "spare-"
	newPrefix   = ".new-"
	infoFile    = "spare.json"
	socketFile  = "socket"
)

// newKept is how long a directory may be without its record.
const newKept = time.Minute

// Pool is the directory of spares, which need not exist.
type Pool struct{ Dir string }

// Info describes a spare.
type Info struct {
	// Process is its shim.
	Process persist.Process `json:"process"`
	// Name is NameOf's result, and Key that of its machine.
	Name string `json:"name"`
	Key  string `json:"key"`
	// Engine and Config are what it was made for, and Store is the
	// configuration's directory of templates.
	Engine  string    `json:"engine,omitempty"`
	Config  string    `json:"config,omitempty"`
	Store   string    `json:"store"`
	Created time.Time `json:"created"`
}

// State is a spare's state; see doc.go.
type State string

// The states.
const (
	Making  State = "making"
	Ready   State = "ready"
	Claimed State = "claimed"
)

// Spare is one that exists.
type Spare struct {
	ID string
	Info
	State State
}

// Ready returns how many spares of a name are ready.
func (p Pool) Ready(name string) (int, error) {
	ids, err := p.ReadyIDs(name)
	return len(ids), err
}

// ReadyIDs lists the spares of a name that are ready, in a fixed order.
func (p Pool) ReadyIDs(name string) ([]string, error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list spares: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, found := strings.CutPrefix(e.Name(), name+"."); found {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// List lists the spares whose processes run.
func (p Pool) List() ([]Spare, error) {
	all, err := p.all()
	var alive []Spare
	for _, s := range all {
		if s.Process.Alive() {
			alive = append(alive, s)
		}
	}
	return alive, err
}

// all lists the spares that have a record, including dead ones.
func (p Pool) all() ([]Spare, error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list spares: %w", err)
	}
	var list []Spare
	for _, e := range entries {
		id, is := strings.CutPrefix(e.Name(), sparePrefix)
		if !is {
			continue
		}
		s := Spare{ID: id, State: Making}
		text, err := os.ReadFile(filepath.Join(p.dir(id), infoFile))
		if err != nil || json.Unmarshal(text, &s.Info) != nil {
			continue // it is just being removed, or was not removed completely (Tidy)
		}
		switch {
		case exists(p.dir(id, socketFile)):
			s.State = Claimed
		case exists(p.socket(s.Name, id)):
			s.State = Ready
		}
		list = append(list, s)
	}
	return list, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// socket is the path of a ready spare's socket.
func (p Pool) socket(name, id string) string { return filepath.Join(p.Dir, name+"."+id) }

// dir is the path of a spare's directory, or of what is in it.
func (p Pool) dir(id string, in ...string) string {
	return filepath.Join(append([]string{p.Dir, sparePrefix + id}, in...)...)
}

// claim takes a spare that is ready. It reports whether the caller, and no one
// else, has it now.
func (p Pool) claim(name, id string) (bool, error) {
	err := os.Rename(p.socket(name, id), p.dir(id, socketFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Tidy removes what dead spares have left.
func (p Pool) Tidy() error {
	all, err := p.all()
	errs := []error{err}
	for _, s := range all {
		if !s.Process.Alive() {
			errs = append(errs, p.remove(s))
		}
	}
	errs = append(errs, p.removeUnrecorded(), hostcgroup.SweepSpares(""))
	return errors.Join(errs...)
}

// removeUnrecorded removes the directories of spares that were killed before they had
// a record there, or while they removed it.
func (p Pool) removeUnrecorded() error {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(p.Dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), newPrefix):
		case strings.HasPrefix(e.Name(), sparePrefix) && !exists(filepath.Join(path, infoFile)):
		default:
			continue
		}
		if info, err := e.Info(); err == nil && persist.IsOlder(info, newKept) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// remove removes a dead spare.
func (p Pool) remove(s Spare) error {
	records, err := persist.List(p.dir(s.ID))
	errs := []error{err}
	for _, rec := range records {
		// The kernel has killed them with their parent.
		errs = append(errs, persist.KillAll(endWait, rec.VM, rec.FSDaemon))
	}
	if err := os.Remove(p.socket(s.Name, s.ID)); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir(s.ID)))...)
}

// Ending a spare: endGrace is how long it may take by itself, and endWait how
// long a killed process may take.
const (
	endGrace = 10 * time.Second
	endWait  = 5 * time.Second
)

// End ends the spares that match, except those that a start has claimed, and
// waits for their end. It does not end one that is being made: that process
// holds its store's lock.
func (p Pool) End(match func(Info) bool) error {
	all, err := p.List()
	errs := []error{err}
	for _, s := range all {
		if !match(s.Info) {
			continue
		}
		mine, err := p.claim(s.Name, s.ID)
		errs = append(errs, err)
		if mine {
			errs = append(errs, p.end(s))
		}
	}
	return errors.Join(append(errs, p.Tidy())...)
}

// end ends a spare that the caller has claimed.
func (p Pool) end(s Spare) error {
	err := s.Process.Signal(unix.SIGTERM)
	if err == nil && s.Process.Await(endGrace) == nil {
		return nil
	}
	return errors.Join(err, s.Process.Kill(endWait))
}

// RemoveEmpty removes the directory, if nothing is in it.
func (p Pool) RemoveEmpty() error {
	err := os.Remove(p.Dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}
