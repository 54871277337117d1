package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/release"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/internal/regular"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
)

// saving is a checkpoint that is being written.
type saving struct {
	key    checkpoint.Key
	record checkpoint.Record
	file   *lateFile // nil before create
	// most bounds the machine's state in bytes: a QEMU that was taken over may
	// write without an end, to fill the disk.
	most int64
	// finishing counts a finish that has not ended.
	finishing sync.WaitGroup
	// complete is set when all of it is on the disk and has its name, and size then.
	complete bool
	size     int64
}

// create makes the file in a directory, which is made if it is missing. It waits no
// longer than ctx: the disk may hang. A file that it makes later is removed.
func (w *saving) create(ctx context.Context, dir string) error {
	create := func() (*lateFile, error) { return createLate(filepath.Join(dir, checkpoint.File)) }
	file, err := intime.Call(ctx, create, func(file *lateFile) { _ = file.remove() })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("make a file in %s: %w", dir, err)
	}
	w.file = file
	return err
}

// remove removes the file, once a finish that was given up has ended. It waits for that
// no longer than undoTimeout; the file goes later then.
func (w *saving) remove() error {
	if w.file == nil {
		return nil
	}
	removed := make(chan error, 1)
	go func() {
		w.finishing.Wait()
		removed <- w.file.remove()
	}()
	select {
	case err := <-removed:
		return err
	case <-time.After(undoTimeout):
		return fmt.Errorf("remove what was written to %s: the disk hangs", w.file.path)
	}
}

// save writes the machine, and gives the file its name. It waits no longer than ctx: the
// disk may hang, and then has the file for itself.
func (w *saving) save(ctx context.Context, vm hypervisor.VM) error {
	state, machine, err := os.Pipe()
	if err != nil {
		return err
	}
	// Without a reader QEMU fails the migration.
	closeState := sync.OnceValue(state.Close)
	defer context.AfterFunc(ctx, func() { _ = closeState() })()
	written := make(chan error, 1)
	go func() { written <- errors.Join(w.write(state), closeState()) }()
	err = vm.SaveAll(ctx, machine)
	err = errors.Join(err, machine.Close())
	select {
	case writeErr := <-written:
		err = errors.Join(writeErr, err)
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("write %s: %w", w.file.path, context.Cause(ctx)))
	}
	if err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	thin(ctx, vm) // not after an error: the guest's memory may still be written to
	return nil
}

// finish gives the file its name. It waits no longer than ctx: the disk may hang. A file
// that has its name later is left to remove.
func (w *saving) finish(ctx context.Context) error {
	var size int64
	named := make(chan error, 1)
	w.finishing.Go(func() {
		info, err := w.file.Stat()
		if err == nil {
			size, err = info.Size(), w.file.finish()
		}
		named <- err
	})
	select {
	case err := <-named:
		if err == nil {
			w.complete, w.size = true, size
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("give %s its name: %w", w.file.path, context.Cause(ctx))
	}
}

// write writes the record and the machine's state to the disk.
func (w *saving) write(state *os.File) error {
	to, err := checkpoint.Create(w.file, w.key, w.record)
	if err == nil {
		bounded := &io.LimitedReader{R: state, N: w.most}
		if _, err = to.ReadFrom(bounded); err == nil && bounded.N == 0 {
			err = fmt.Errorf("the machine's state has %d bytes and more, want less: %w", w.most, errdefs.ErrResourceExhausted)
		}
		err = errors.Join(err, to.Close())
	}
	if err == nil {
		err = w.file.Sync()
	}
	return err
}

// mostStateBytes returns the greatest size of a machine's state in bytes: its memory,
// eight bytes more for each page (QEMU's migration/ram.c, save_page_header), and what the
// devices may have, of which the share's server is allowed 256 MiB (vhostuser).
func mostStateBytes(memoryMiB uint64) int64 {
	const devices = 512 << 20
	memory := int64(memoryMiB) << 20
	return memory + memory/128 + devices
}

// minKey is the least length of a key, in bytes, and maxKey the most that is read.
const minKey, maxKey = 32, 4096

// checkpointKey reads the key of checkpoints, nil if path is empty. Ctx bounds it: the
// disk may hang.
func checkpointKey(ctx context.Context, path string) (checkpoint.Key, error) {
	if path == "" {
		return nil, nil
	}
	key, err := intime.Call(ctx, func() (checkpoint.Key, error) { return readKey(path) }, func(checkpoint.Key) {})
	if err != nil {
		return nil, fmt.Errorf("read key (runtime.checkpoint_key_file): %w", err)
	}
	return key, nil
}

// readKey reads a regular file, which may be behind a link, as a mounted secret is.
func readKey(path string) ([]byte, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if n := info.Size(); n < minKey || n > maxKey {
		return nil, fmt.Errorf("%s has %d bytes, want %d to %d: %w", path, n, minKey, maxKey, errdefs.ErrFailedPrecondition)
	}
	return io.ReadAll(io.LimitReader(f, maxKey))
}

// describe returns the record of a container's checkpoint. It fails with
// errdefs.ErrFailedPrecondition, and says why, for one that cannot be saved.
func (c *Container) describe(ctx context.Context) (checkpoint.Record, error) {
	rec := checkpoint.Record{Created: time.Now().UTC(), Container: checkpoint.Container{
		ID: c.ID, ShareID: c.files.ShareID, Terminal: c.init.terminal, PID: c.guestPID,
	}}
	err := c.checkAlone()
	if err == nil {
		rec.Container.Mounts, err = c.files.SavedMounts()
	}
	if err == nil {
		rec.Machine, err = c.sandbox.describeMachine(ctx)
	}
	if err == nil && c.sandbox.files.Shares() && tooOld(rec.Machine.VMM) {
		err = fmt.Errorf("QEMU %s cannot save a machine with a share of files, QEMU %v and later can: %w", rec.Machine.VMM, savesShares, errdefs.ErrFailedPrecondition)
	}
	return rec, err
}

// checkAlone checks that nothing runs in the sandbox but the container's init and
// what that has started.
func (c *Container) checkAlone() error {
	s := c.sandbox
	if n := len(s.Containers()); n != 1 || c.ID != s.ID {
		return fmt.Errorf("it is one of a pod's containers, and only a container with its own sandbox can be saved: %w", errdefs.ErrFailedPrecondition)
	}
	for _, p := range c.processes() {
		if p.IsExec() {
			return fmt.Errorf("it has the exec %s, which was not deleted: %w", p.execID, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// describeMachine describes the machine as it is now, or as a machine that awaits
// another's state must be.
func (m *machine) describeMachine(ctx context.Context) (checkpoint.Machine, error) {
	spec := m.spec(m.jail)
	d := checkpoint.Machine{VMM: m.vm.Version(), MaxVCPUs: spec.MaxVCPUs, MaxMemoryMiB: spec.MaxMemoryMiB}
	if what := oddity(spec); what != "" {
		return d, fmt.Errorf("machines with %s cannot be saved: %w", what, errdefs.ErrFailedPrecondition)
	}
	if h := m.config.Hypervisor; h.SharedFS != config.SharedFSNone && h.VirtioFS.Daemon != "" {
		return d, fmt.Errorf("%s serves its files, which cannot be saved (virtio_fs_daemon = \"\": the shim serves them): %w", h.VirtioFS.Daemon, errdefs.ErrFailedPrecondition)
	}
	var err error
	if d.Description, err = m.platform.Monitor.Describe(spec); err != nil {
		return d, err
	}
	if m.platform.Accel == hypervisor.AccelKVM {
		host, err := factory.ThisHost()
		if err != nil {
			return d, err
		}
		d.CPU = host.CPU
	}
	d.Layout, err = m.vm.Layout(ctx)
	return d, err
}

// savesShares is the first QEMU that can save a machine with a share.
var savesShares = release.Release{Major: 8, Minor: 2}

// tooOld reports whether a QEMU cannot save a machine with a share. One whose
// version cannot be parsed is tried.
func tooOld(version string) bool {
	v, known := release.Parse(version)
	return known && v.Before(savesShares)
}
