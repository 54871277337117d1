package virtcontainers

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

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
// cannot be read: SweepAbandoned tries again.
func Recover(platform Platform, sandboxID, containerID string, killTimeout time.Duration) (persist.Record, error) {
	name := platform.Owner.Name(sandboxID)
	rec, err := persist.Load(platform.StateDir(), name)
	if err != nil {
		rec = &persist.Record{SandboxID: sandboxID}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // the boot had not begun, or the sandbox is gone
		}
	}
	if sandboxID != containerID && rec.Shim.Alive() {
		return *rec, err
	}
	if err == nil {
		markErr := persist.BeginRemoval(platform.StateDir(), name) // matters only if the removal fails
		if err := removeRecorded(platform, rec, killTimeout); err != nil {
			return *rec, errors.Join(err, markErr)
		}
	}
	return *rec, errors.Join(err, persist.Remove(platform.StateDir(), name))
}

// removeRecorded removes all that a record names.
func removeRecorded(platform Platform, rec *persist.Record, killTimeout time.Duration) error {
	left := append([]persist.Process{rec.Shim, rec.VM, rec.FSDaemon}, slices.Collect(maps.Values(rec.StandIns))...)
	errs := []error{persist.KillAll(killTimeout, left...)}
	if platform.CleanNetwork != nil && len(rec.Network) > 0 {
		errs = append(errs, platform.CleanNetwork(rec.NetNS, rec.Network))
	}
	for _, dir := range rec.StandInCgroups {
		errs = append(errs, hostcgroup.RemoveContainer(context.Background(), dir))
	}
	errs = append(errs, hostcgroup.Remove(context.Background(), rec.Cgroups))
	if rec.MemoryDir != "" {
		errs = append(errs, os.RemoveAll(rec.MemoryDir))
	}
	return errors.Join(errs...)
}

// UnmountBundle unmounts the root file system of a bundle whose shim is dead.
func UnmountBundle(dir string) error {
	return guestfs.UnmountBundle(dir)
}
