package factory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/virtcontainers/persist"
)

const (
	// keepLife is how long a keeper keeps the memory of a template from which nothing
	// starts.
	keepLife = 10 * time.Minute
	// keepGrowth is how many bytes larger than the template's file the memory may be: pods
	// that use pages which the template has not make it grow, up to all of the guest's memory.
	keepGrowth = 128 << 20
	// keepLook is how often it looks.
	keepLook = 10 * time.Second
	// keeperEnd is how long a keeper may take to exit that is killed.
	keeperEnd = 5 * time.Second
)

// Keep lends a template's sealed memory from this process, the template's keeper,
// between pods: the next one need not copy it. It returns when the template has not been
// used for ten minutes, is removed, or does not fit any more, or when the memory has grown
// by more than 128 MiB. sum is the template's whose memory it is (Lent.Sum). It fails with
// errdefs.ErrAlreadyExists if the template has a keeper, and with
// errdefs.ErrFailedPrecondition if the key is another template's now. Removing the template
// kills this process.
func (s Store) Keep(ctx context.Context, key Key, sum uint32, memory *os.File) error {
	if !isKey(string(key)) || !memfile.Sealed(memory) {
		return fmt.Errorf("keep memory of template %q: not a key, or the memory is not sealed: %w", key, errdefs.ErrInvalidArgument)
	}
	path, err := s.signKeeper(key, sum, memory)
	if err != nil {
		return fmt.Errorf("keep memory of template %s: %w", key, err)
	}
	s.awaitDisuse(ctx, key, path, memory)
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// signKeeper notes that this process is the template's keeper, and returns the note.
func (s Store) signKeeper(key Key, sum uint32, memory *os.File) (path string, err error) {
	rec, err := readRecord(filepath.Join(s.Dir, string(key)))
	if err != nil {
		return "", err
	}
	if rec.MemorySum != sum {
		return "", fmt.Errorf("it was made again: %w", errdefs.ErrFailedPrecondition)
	}
	dir := filepath.Join(s.Dir, string(key), lendersDir)
	lock, err := lockDir(dir)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if k, ok := keeperIn(dir); ok {
		return "", fmt.Errorf("process %d keeps it: %w", k.PID, errdefs.ErrAlreadyExists)
	}
	path = notePath(dir, memory)
	return path, sign(path, memory, note{Sum: sum, Keeper: true})
}

// awaitDisuse waits until the memory is not worth keeping, or ctx ends.
func (s Store) awaitDisuse(ctx context.Context, key Key, note string, memory *os.File) {
	again := time.NewTicker(keepLook)
	defer again.Stop()
	for exists(note) && s.worthKeeping(key, memory) {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// worthKeeping reports whether the next pod may be expected soon, and the memory has not
// become much larger than a new copy would be.
func (s Store) worthKeeping(key Key, memory *os.File) bool {
	i := s.info(key)
	var st unix.Stat_t
	return i.lives(keepLife, 0) && unix.Fstat(int(memory.Fd()), &st) == nil && st.Blocks*512 <= i.Bytes+keepGrowth
}

// keeperIn returns the keeper that has a note in the directory, if there is one.
func keeperIn(dir string) (persist.Process, bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return persist.Process{}, false
	}
	for _, e := range entries {
		n, err := readNote(filepath.Join(dir, e.Name()))
		if err != nil || !n.Keeper {
			continue
		}
		// A note may be older than the host's start, and its process another one.
		if place, err := n.find(); err == nil {
			_ = place.Close() // nothing was written
			return n.Process, true
		}
	}
	return persist.Process{}, false
}

// endKeeper kills the keeper that has a note in the directory, if there is one, and
// waits for its end.
func endKeeper(dir string) error {
	k, ok := keeperIn(dir)
	if !ok || k.PID == os.Getpid() {
		return nil
	}
	if err := k.Kill(keeperEnd); err != nil {
		return fmt.Errorf("end the process that keeps the memory: %w", err)
	}
	return nil
}
