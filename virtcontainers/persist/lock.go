package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPause is the time between two tries for the lock.
const lockPause = 10 * time.Millisecond

// Lock makes the caller the only process that looks for dead shims' records
// below root, until unlock is called or the process ends. It waits at most
// timeout.
func Lock(root string, timeout time.Duration) (unlock func() error, err error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("lock sandbox states: %w", err)
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("lock sandbox states: %w", err)
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(lockPause) {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return dir.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("lock sandbox states: %w", err), dir.Close())
		}
	}
}

// Abandoned lists the owner's sandboxes below root whose removal (BeginRemoval)
// began at least that long ago and has not succeeded.
func Abandoned(root string, owner Owner, age time.Duration) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sandbox states: %w", err)
	}
	var abandoned []string
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(root, e.Name(), removalFile))
		if err != nil || !IsOlder(info, age) {
			continue
		}
		if rec := read(root, e.Name()); rec != nil && rec.Owner == owner && rec.Orphaned() {
			abandoned = append(abandoned, rec.SandboxID)
		}
	}
	return abandoned, nil
}

// IsOlder reports whether a file was last changed at least that long ago. One that is to
// be changed that far in the future counts too: the clock was set back since.
func IsOlder(info fs.FileInfo, age time.Duration) bool {
	return time.Since(info.ModTime()).Abs() >= age
}

// Dead lists the owner's sandboxes below root whose shim has died and left its
// record. A record that cannot be read, or does not name its shim yet, is not
// listed.
func Dead(root string, owner Owner) ([]string, error) {
	all, err := List(root)
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, rec := range all {
		if rec.Owner == owner && rec.Orphaned() {
			dead = append(dead, rec.SandboxID)
		}
	}
	return dead, nil
}

// Orphaned reports whether the record names a shim, which has died.
func (r *Record) Orphaned() bool { return r.Shim.PID > 0 && !r.Shim.Alive() }

// RemoveUnfinished removes the directories below root that are no pod's: they have no
// record, or one that names no shim, and have not changed for age. Their shims were
// killed before they had made anything else, or when the rest was removed. The caller
// has the lock.
func RemoveUnfinished(root string, age time.Duration) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("list sandbox states: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !IsOlder(info, age) {
			continue
		}
		rec, err := Load(root, e.Name())
		if errors.Is(err, fs.ErrNotExist) || err == nil && rec.Shim.PID == 0 {
			errs = append(errs, Remove(root, e.Name()))
		}
	}
	return errors.Join(errs...)
}
