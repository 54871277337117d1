package pool

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// Entry is a spare's own place in the pool. Its methods are for one goroutine.
type Entry struct {
	pool Pool
	id   string
	info Info
}

// NewID returns an id for a spare.
func NewID() string { return rand.Text()[:8] }

// Add makes the place of a spare that this process is making. info.Process is
// set to this process.
func (p Pool) Add(id string, info Info) (*Entry, error) {
	if err := p.prepare(); err != nil {
		return nil, err
	}
	e := &Entry{pool: p, id: id, info: info}
	var err error
	if e.info.Process, err = persist.Identify(os.Getpid()); err != nil {
		return nil, err
	}
	dir := filepath.Join(p.Dir, newPrefix+id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	text, err := json.Marshal(e.info)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, infoFile), text, 0o600)
	}
	if err == nil {
		err = os.Rename(dir, e.Dir())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("record spare: %w", err), os.RemoveAll(dir))
	}
	return e, nil
}

// prepare makes the directory. Other users must not be able to make sockets in
// it: a start passes its pod's environment to them.
func (p Pool) prepare() error {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(p.Dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: p.Dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s is not a directory of this user", p.Dir)
	}
	return os.Chmod(p.Dir, 0o700)
}

// ID is the spare's.
func (e *Entry) ID() string { return e.id }

// Dir is a directory for what the spare has on the host; it is removed with the
// spare.
func (e *Entry) Dir() string { return e.pool.dir(e.id) }

// Offer makes the spare ready. The caller closes the listener.
func (e *Entry) Offer() (*net.UnixListener, error) {
	made := e.pool.dir(e.id, "new")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: made, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("offer spare: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Rename(made, e.pool.socket(e.info.Name, e.id)); err != nil {
		return nil, errors.Join(fmt.Errorf("offer spare: %w", err), l.Close())
	}
	return l, nil
}

// Withdraw ends the offer. It reports false if the spare has been claimed.
func (e *Entry) Withdraw() (bool, error) { return e.pool.claim(e.info.Name, e.id) }

// Offered reports whether the spare can still be claimed.
func (e *Entry) Offered() bool { return exists(e.pool.socket(e.info.Name, e.id)) }

// Remove removes the spare's place. It may be called again.
func (e *Entry) Remove() error {
	err := os.Remove(e.pool.socket(e.info.Name, e.id))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(e.Dir()))
}
