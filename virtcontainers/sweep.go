package virtcontainers

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// sweepLockWait bounds how long a sweep waits for another one to end.
const sweepLockWait = 2 * time.Second

// Sweep recovers every sandbox of the platform's Owner whose shim is dead, as
// Recover does for one, and returns their ids. It is for engines that do not
// clean up after a dead shim. Every start of a sandbox must be preceded by a
// Sweep: that removes an old record of the sandbox, so that no concurrent sweep
// can mistake the new sandbox for the old one.
func Sweep(platform Platform, killTimeout time.Duration) (swept []string, err error) {
	unlock, err := persist.Lock(platform.StateDir(), sweepLockWait)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// Records without an owner come from older shims, which named them by the
	// id alone.
	for _, owner := range slices.Compact([]persist.Owner{platform.Owner, {}}) {
		platform.Owner = owner
		ids, sweepErr := sweep(platform, killTimeout)
		swept, err = append(swept, ids...), errors.Join(err, sweepErr)
	}
	return swept, errors.Join(err, persist.RemoveUnfinished(platform.StateDir(), unfinishedAfter))
}

// unfinishedAfter is when a record that names no shim counts as that of a shim that was
// killed: a shim writes both at once.
const unfinishedAfter = time.Minute

// abandonedAfter is when a Recover that has not succeeded counts as ended: an
// engine gives it a few seconds.
const abandonedAfter = 15 * time.Second

// SweepAbandoned tries again to recover the sandboxes of the platform's Owner
// for which Recover failed, or was killed. It is for engines that clean up after
// a dead shim, once. starting is the id of the sandbox that is about to start, ""
// for none: an earlier sandbox of that id is recovered immediately, because the new
// record replaces the old one.
func SweepAbandoned(platform Platform, starting string, killTimeout time.Duration) error {
	ids, err := persist.Abandoned(platform.StateDir(), platform.Owner, abandonedAfter)
	if starting != "" && !slices.Contains(ids, starting) {
		rec, loadErr := persist.Load(platform.StateDir(), platform.Owner.Name(starting))
		if loadErr == nil && rec.Orphaned() {
			ids = append([]string{starting}, ids...)
		}
	}
	if err != nil || len(ids) == 0 {
		return err
	}
	unlock, err := persist.Lock(platform.StateDir(), sweepLockWait)
	if err != nil {
		return err
	}
	_, err = recoverAll(platform, ids, killTimeout)
	return errors.Join(err, unlock())
}

// sweep does Sweep's work for one owner.
func sweep(platform Platform, killTimeout time.Duration) (swept []string, err error) {
	dead, err := persist.Dead(platform.StateDir(), platform.Owner)
	if err != nil {
		return nil, err
	}
	return recoverAll(platform, dead, killTimeout)
}

// recoverAll recovers those of the sandboxes whose shim is still dead, and returns
// their ids.
func recoverAll(platform Platform, ids []string, killTimeout time.Duration) (recovered []string, err error) {
	var errs []error
	for _, id := range ids {
		done, err := recoverOrphan(platform, id, killTimeout)
		if err != nil {
			errs = append(errs, fmt.Errorf("recover sandbox %s: %w", id, err))
		}
		if done && err == nil {
			recovered = append(recovered, id)
		}
	}
	return recovered, errors.Join(errs...)
}
