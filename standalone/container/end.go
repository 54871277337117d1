package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/signal"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// endTimeout is how long the engine of a killed container may take to clean up.
const endTimeout = 60 * time.Second

// readerTimeout is how long the engine of a killed container may wait for a slow reader
// of its output.
const readerTimeout = 5 * time.Second

// unfinishedTimeout is how long to wait for the record of a container that may be just
// being made.
const unfinishedTimeout = 2 * time.Second

// answerTimeout bounds a signal: the shim answers one later than the kill_timeout of a
// guest that hangs, a minute without KVM.
const answerTimeout = 90 * time.Second

// errSilent is the error of a shim that does not answer: it is stopped, or hangs.
var errSilent = errors.New("the container's shim does not answer")

// Stop asks a container's command to end, and kills it after the given time. It
// returns when the container has exited, or with an error if its shim does not answer.
// It is not an error if it had exited before.
func (m *Manager) Stop(ctx context.Context, name string, after time.Duration) error {
	r, err := m.Load(name)
	if err != nil || r.Exited != nil {
		return err
	}
	if !r.Engine.Alive() {
		return fmt.Errorf("container %s is dead: remove it: %w", name, errdefs.ErrFailedPrecondition)
	}
	err = m.kill(ctx, name, uint32(r.stopSignal()))
	if err == nil && await(ctx, r.Engine, after) != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the end of container %s: %w", name, context.Cause(ctx))
		}
		err = m.killAndAwait(ctx, r)
	}
	if errors.Is(err, errSilent) {
		return fmt.Errorf("%w: remove it with rm --force", err)
	}
	return err
}

// stopSignal is the signal that asks the command to end: its image's, or SIGTERM if that
// names none or one that does not exist.
func (r *Record) stopSignal() unix.Signal {
	sig, err := signal.ParseSignal(r.StopSignal)
	if err != nil || !signal.ValidSignalForPlatform(sig) {
		return unix.SIGTERM
	}
	return sig
}

// kill sends a signal; it is not an error if the container has ended meanwhile.
func (m *Manager) kill(ctx context.Context, name string, signal uint32) error {
	shim, err := client.Connect(ctx, m.Store.ContainerDir(name))
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer shim.Close()
	timeout := cmp.Or(m.answerTimeout, answerTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w for %v", errSilent, timeout))
	defer cancel()
	if _, err := shim.Kill(ctx, &task.KillRequest{ID: name, Signal: signal}); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		return fmt.Errorf("kill container %s: %w", name, err)
	}
	return nil
}

// killAndAwait kills a container and waits until its engine has ended; an engine
// that does not end is killed too.
func (m *Manager) killAndAwait(ctx context.Context, r *Record) error {
	if r.Started == nil {
		// There may be nothing to kill yet; the engine then stops its start.
		_ = unix.Kill(r.Engine.PID, unix.SIGTERM) // it may have ended
	}
	if err := m.kill(ctx, r.Name, uint32(unix.SIGKILL)); err != nil {
		return err
	}
	if await(ctx, r.Engine, readerTimeout) == nil {
		return nil
	}
	if ctx.Err() == nil {
		_ = unix.Kill(r.Engine.PID, unix.SIGTERM) // gives the reader up; it may have ended
	}
	if await(ctx, r.Engine, endTimeout) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the end of container %s: %w", r.Name, context.Cause(ctx))
	}
	return r.Engine.Kill(endTimeout)
}

// awaitRound is the time between two checks of a context.
const awaitRound = 100 * time.Millisecond

// await waits until a process is gone, at most timeout, and no longer than ctx.
func await(ctx context.Context, p persist.Process, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ; {
		left := time.Until(deadline)
		err := p.Await(max(min(left, awaitRound), 0))
		if err == nil || left <= 0 {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Remove removes a container that has exited or whose process was killed, and
// with force a running one.
func (m *Manager) Remove(ctx context.Context, name string, force bool) error {
	r, err := m.loadOrRemove(ctx, name)
	if r == nil {
		return err
	}
	if r.Engine.Alive() && r.Exited == nil && !force {
		return fmt.Errorf("container %s is running: stop it, or remove it with --force: %w", name, errdefs.ErrFailedPrecondition)
	}
	if r.Engine.Alive() {
		err := m.killAndAwait(ctx, r)
		if errors.Is(err, errSilent) { // it is killed below
			err = r.Engine.Kill(endTimeout)
		}
		if err != nil {
			return err
		}
	}
	return m.clean(ctx, r)
}

// loadOrRemove reads a container's record. A directory without one is that of a container
// which is being made, and gets its record in a moment, or whose process was killed before:
// that is removed once no process uses the store, and the record is nil. It is also nil
// after an error.
func (m *Manager) loadOrRemove(ctx context.Context, name string) (*Record, error) {
	for deadline := time.Now().Add(unfinishedTimeout); ; {
		r, err := m.Load(name)
		if !errdefs.IsNotFound(err) {
			return r, err
		}
		if _, statErr := os.Stat(m.Store.ContainerDir(name)); statErr != nil {
			return nil, err
		}
		removed, err := m.Store.RemoveContainerWithout(name, recordFile)
		if removed || err != nil {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("container %s has no record, and other containers are being made: try again when they run: %w", name, errdefs.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("remove container %s: %w", name, context.Cause(ctx))
		case <-time.After(awaitRound):
		}
	}
}

// clean removes the leftovers of a container whose engine is gone. Another process
// may have done so before, and may run a new container of that name: that is left
// alone.
func (m *Manager) clean(ctx context.Context, r *Record) error {
	unlock, err := m.Store.Clean(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }() // closes a file that was only locked
	now, err := m.Load(r.Name)
	if errdefs.IsNotFound(err) || err == nil && now.Engine != r.Engine {
		return nil
	}
	if err != nil {
		return err
	}
	return m.remove(ctx, r.Name)
}

// remove removes what the shim has left of a container, and its files.
func (m *Manager) remove(ctx context.Context, name string) error {
	dir := m.Store.ContainerDir(name)
	_, err := os.Stat(filepath.Join(dir, bundle.AddressFile))
	switch {
	case err == nil:
		if _, err := client.Delete(ctx, m.program(name)); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("remove container %s: %w", name, err)
	}
	if err := m.Store.RemoveContainer(name); err != nil {
		return err
	}
	return m.Store.Sweep()
}

// SweepDead removes the containers that were to be removed at their end but whose
// process was killed before, and the directories of those that have no record: theirs
// was killed before it wrote one, or while it removed them.
func (m *Manager) SweepDead(ctx context.Context) error {
	records, err := m.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		if r.Remove && !r.Engine.Alive() {
			errs = append(errs, m.clean(ctx, r))
		}
	}
	return errors.Join(append(errs, m.Store.RemoveContainersWithout(recordFile))...)
}
