package factory

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/regular"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// Lock is the right to make templates in a store: one process has it at a time.
// It ends when every process that has its file has closed it, or died.
type Lock struct {
	file *os.File
	// signed is set once this process is named in the file.
	signed bool
}

// InheritLock takes over a lock that another process passed on as an open file.
// The lock owns f.
func InheritLock(f *os.File) *Lock { return &Lock{file: f} }

// File returns the file to pass to the process that takes over the lock. The
// lock still owns it.
func (l *Lock) File() *os.File { return l.file }

// Pass returns the file for the process that takes over the lock. This process is
// not named in it any more: RemoveAll must not end it in place of the other.
func (l *Lock) Pass() (*os.File, error) {
	if !l.signed {
		return l.file, nil
	}
	l.signed = false
	return l.file, l.file.Truncate(0)
}

// Close releases the lock, unless another process has its file open too.
func (l *Lock) Close() error {
	var err error
	if l.signed {
		err = l.file.Truncate(0)
	}
	return errors.Join(err, l.file.Close())
}

// Sign writes into the lock's file that this process has it, for RemoveAll.
func (l *Lock) Sign() error {
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		return err
	}
	text, err := json.Marshal(self)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	l.signed = true
	_, err = l.file.WriteAt(text, 0)
	return err
}

// lockTries bounds how often Lock starts over because the lock file was
// removed, with its store, while it was being locked.
const lockTries = 10

// Lock makes the caller the only maker. It fails with errdefs.ErrUnavailable
// while there is another.
func (s Store) Lock() (*Lock, error) {
	for range lockTries {
		l, err := s.tryLock()
		if l != nil || err != nil {
			return l, err
		}
	}
	return nil, fmt.Errorf("%s is removed again and again: %w", s.Dir, errdefs.ErrUnavailable)
}

// tryLock returns nil if the file had been removed by the time it was locked:
// another process may have made a new one.
func (s Store) tryLock() (*Lock, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	path := filepath.Join(s.Dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // said above
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another process is making one: %w", errdefs.ErrUnavailable)
		}
		return nil, errors.Join(err, f.Close())
	}
	mine, err := f.Stat()
	there, statErr := os.Lstat(path)
	if err != nil || statErr != nil || !os.SameFile(mine, there) {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{file: f}, nil
}

// Maker returns the process that is making a template, if there is one.
func (s Store) Maker() (persist.Process, bool) {
	f, err := regular.Open(filepath.Join(s.Dir, lockFile))
	if err != nil {
		return persist.Process{}, false
	}
	defer f.Close()
	text, err := readUpTo(f, maxInfo)
	var p persist.Process
	if err != nil || json.Unmarshal(text, &p) != nil || !p.Alive() {
		return persist.Process{}, false
	}
	return p, true
}

// Ending a maker: makerGrace is how long it may take to clean up after it was
// asked to end, and makerEnd when to give up waiting.
const (
	makerGrace = 10 * time.Second
	makerEnd   = 20 * time.Second
	makerPause = 20 * time.Millisecond
)

// lockOver is like Lock, but ends the maker that holds the lock.
func (s Store) lockOver() (*Lock, error) {
	var told persist.Process
	for began := time.Now(); ; time.Sleep(makerPause) {
		l, err := s.Lock()
		if !errdefs.IsUnavailable(err) {
			return l, err
		}
		maker, known := s.Maker()
		waited := time.Since(began)
		switch {
		case waited > makerEnd || maker.PID == os.Getpid():
			return nil, fmt.Errorf("%w, and it does not exit", err)
		case known && waited > makerGrace:
			err = maker.Kill(makerGrace)
		case known && maker != told:
			err, told = maker.Signal(unix.SIGTERM), maker
		default:
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("end the process that makes a template: %w", err)
		}
	}
}
