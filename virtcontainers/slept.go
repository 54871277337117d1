package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/virtcontainers/network"
)

// slept is what a sandbox that hibernates is woken from.
type slept struct {
	Hibernation

	memory []memfile.Memory
	image  *os.File
	key    memfile.Key
	// counters are the containers' statistics, which do not change meanwhile.
	counters map[string]*stats.Metrics
	// bell rings when packets come for the pod.
	bell *network.Doorbell
	// using counts the calls of do that have not ended.
	using sync.WaitGroup
}

// do calls f, which uses the files, and waits for it no longer than ctx: a disk may
// hang. After an error of ctx f may still run, and only close may follow.
func (z *slept) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	z.using.Go(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wakePatience is how long restoring the memory may take without any progress. Progress
// is a block of it, 256 KiB at most (package memfile). How long all of it takes depends
// on the disk, and on whether the host has memory free, and ends no sandbox.
const wakePatience = 30 * time.Second

// empty drops what the memory has.
func (z *slept) empty(ctx context.Context) error {
	ctx, progress, stop := whileProgressing(ctx)
	defer stop()
	return z.do(ctx, func() error {
		for _, part := range z.memory {
			if err := part.Discard(ctx); err != nil {
				return err
			}
			progress()
		}
		return nil
	})
}

// restore writes the image back into the memory.
func (z *slept) restore(ctx context.Context) error {
	ctx, progress, stop := whileProgressing(ctx)
	defer stop()
	var watched []memfile.Memory
	for _, part := range z.memory {
		watched = append(watched, watchedMemory{part, progress})
	}
	return z.do(ctx, func() error { return memfile.RestoreImage(ctx, z.image, z.key, watched) })
}

// watchedMemory is memory that tells of each block that was put back.
type watchedMemory struct {
	memfile.Memory
	progress func()
}

// PutBlock implements memfile.Memory.
func (m watchedMemory) PutBlock(block []byte, at int64) error {
	err := m.Memory.PutBlock(block, at)
	m.progress()
	return err
}

// whileProgressing returns a context that ends with ctx, or once progress was not called
// for wakePatience. The caller must call stop.
func whileProgressing(ctx context.Context) (_ context.Context, progress, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(wakePatience, func() {
		cancel(fmt.Errorf("nothing of it was restored for %v: %w", wakePatience, context.DeadlineExceeded))
	})
	return ctx, func() { timer.Reset(wakePatience) }, func() { timer.Stop(); cancel(nil) }
}

// hush stops listening for packets: none is to ring for a sandbox that is awake. It
// may be called again.
func (z *slept) hush() error {
	if z.bell == nil {
		return nil
	}
	return z.bell.Close()
}

// close closes the files when nothing uses them any more; the image is gone then.
// It waits for that no longer than undoTimeout.
func (z *slept) close() error {
	ended := make(chan error, 1)
	go func() {
		z.using.Wait()
		var errs []error
		for _, part := range z.memory {
			errs = append(errs, part.Close())
		}
		if z.image != nil {
			errs = append(errs, z.image.Close())
		}
		ended <- errors.Join(errs...)
	}()
	err := z.hush()
	select {
	case closeErr := <-ended:
		return errors.Join(err, closeErr)
	case <-time.After(undoTimeout):
		return errors.Join(err, errors.New("the disk of runtime.hibernate_path hangs"))
	}
}
