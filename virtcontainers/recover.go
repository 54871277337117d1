package virtcontainers

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// Recover removes what a dead shim left of a sandbox: its processes, its
// cgroups, its directory for memory, what it made in the pod's network
// namespace, its record. (The share ends with the processes.) It is called in
// another process than the shim, once or repeatedly, whatever the shim was
// doing when it died. It affects only a sandbox of the platform's Owner and,
// while the shim lives, only if the container is the sandbox's own. Fields that
// the record lacks are returned empty. On an error the record is kept, unless it
// is damaged: SweepAbandoned tries again.
func Recover(platform Platform, sandboxID, containerID string, killTimeout time.Duration) (persist.Record, error) {
	name := platform.Owner.Name(sandboxID)
	rec, err := loadBy(time.Now().Add(killTimeout), platform.StateDir(), name)
	if err != nil {
		rec = &persist.Record{SandboxID: sandboxID}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = nil // the boot had not begun, or the sandbox is gone
		case errors.As(err, new(*fs.PathError)): // it is there, and may be read later
			if sandboxID == containerID {
				err = errors.Join(err, persist.BeginRemoval(platform.StateDir(), name))
			}
			return *rec, err
		}
	}
	if sandboxID != containerID && rec.Shim.Alive() {
		return *rec, err
	}
	if err == nil {
		if err := removeMarked(platform, name, rec, killTimeout); err != nil {
			return *rec, err
		}
	}
	return *rec, errors.Join(err, persist.Remove(platform.StateDir(), name))
}

// loadPause is the time between two attempts to load a record.
const loadPause = 10 * time.Millisecond

// loadBy loads a record, and tries again until the deadline if this host lacks what it
// takes: without a record there is no mark either, and so no later attempt.
func loadBy(deadline time.Time, stateDir, name string) (*persist.Record, error) {
	for {
		rec, err := persist.Load(stateDir, name)
		lacks := errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
		if !lacks || !time.Now().Before(deadline) {
			return rec, err
		}
		time.Sleep(loadPause)
	}
}

// recoverOrphan is Recover for a sandbox that was listed before: meanwhile another
// process may have recovered it, and a new one with its id may have started, which
// is left alone. It reports whether it has recovered one.
func recoverOrphan(platform Platform, sandboxID string, killTimeout time.Duration) (bool, error) {
	name := platform.Owner.Name(sandboxID)
	rec, err := persist.Load(platform.StateDir(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !rec.Orphaned() {
		return false, err
	}
	if err := removeMarked(platform, name, rec, killTimeout); err != nil {
		return false, err
	}
	if now, err := persist.Load(platform.StateDir(), name); err == nil && now.Shim != rec.Shim {
		return false, nil // the id is a new sandbox's, with all that has its name
	}
	return true, persist.Remove(platform.StateDir(), name)
}

// removeMarked removes all that a record names, and marks the record meanwhile.
func removeMarked(platform Platform, name string, rec *persist.Record, killTimeout time.Duration) error {
	markErr := persist.BeginRemoval(platform.StateDir(), name) // matters only if the removal fails
	if err := removeRecorded(platform, rec, killTimeout); err != nil {
		return errors.Join(err, markErr)
	}
	return nil
}

// lastRemoval is the least time for the removal of cgroups: the kernel may still
// be removing from them the processes that have just ended.
const lastRemoval = 200 * time.Millisecond

// removeRecorded removes all that a record names. Its processes and its cgroups
// have killTimeout together.
func removeRecorded(platform Platform, rec *persist.Record, killTimeout time.Duration) error {
	end := time.Now().Add(killTimeout)
	left := append([]persist.Process{rec.Shim, rec.VM, rec.FSDaemon}, slices.Collect(maps.Values(rec.StandIns))...)
	errs := []error{persist.KillAll(killTimeout, left...)}
	if errs[0] == nil { // else it would move the VM out of its limits
		errs = append(errs, hostcgroup.Evacuate(platform.CgroupRoot, rec.Cgroups))
	}
	if platform.CleanNetwork != nil && len(rec.Network) > 0 {
		errs = append(errs, platform.CleanNetwork(rec.NetNS, rec.Network))
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(time.Until(end), lastRemoval))
	defer cancel()
	for _, dir := range rec.StandInCgroups {
		errs = append(errs, hostcgroup.RemoveContainer(ctx, dir))
	}
	errs = append(errs, hostcgroup.Remove(ctx, rec.Cgroups))
	if rec.MemoryDir != "" {
		errs = append(errs, os.RemoveAll(rec.MemoryDir))
	}
	return errors.Join(errs...)
}

// UnmountBundle unmounts the root file system of a bundle whose shim is dead.
func UnmountBundle(dir string) error {
	return guestfs.UnmountBundle(dir)
}
