package virtcontainers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/virtcontainers/network"
)

// A sandbox hibernates in place: its machine is paused, and the guest's memory is
// in a file on disk instead of in the host's memory. QEMU and this process stay,
// and with them devices, connections, mounts and names. The file has no name and
// its key is only here, so that nothing of it outlives this process.

const (
	// quietWait bounds how long Hibernate asks for statistics, and waits for calls
	// to the guest that are under way.
	quietWait = 10 * time.Second
	// pauseTimeout bounds stopping the machine, and letting it run again.
	pauseTimeout = 30 * time.Second
	// imageRate is the minimum rate at which the image is expected to be read
	// back, in bytes per second.
	imageRate = 16 << 20
)

// Hibernation says since when a sandbox hibernates, and what that saves.
type Hibernation struct {
	Since time.Time `json:"since"`
	// MemoryBytes is how much of the host's memory the guest had.
	MemoryBytes uint64 `json:"memory_bytes"`
	// ImageBytes is how much of the host's disk it has instead.
	ImageBytes uint64 `json:"image_bytes"`
}

// slept is what a sandbox that hibernates is woken from.
type slept struct {
	Hibernation

	memory []*os.File
	image  *os.File
	key    memfile.Key
	// counters are the containers' statistics, which do not change meanwhile.
	counters map[string]*stats.Metrics
	// bell rings when packets come for the pod.
	bell *network.Doorbell
	// done is set once the memory is given back.
	done atomic.Bool
}

// close closes the files; the image is gone then.
func (z *slept) close() error {
	var errs []error
	if z.bell != nil {
		errs = append(errs, z.bell.Close())
	}
	for _, f := range append(z.memory, z.image) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Hibernate pauses the machine, saves the guest's memory to disk and gives it
// back to the host, until a call to the guest or Wake. ctx bounds it. After an
// error the sandbox runs on. It fails with errdefs.ErrFailedPrecondition for a
// sandbox that hibernates, or that cannot, and with errdefs.ErrUnavailable if the
// guest has calls to answer.
func (s *Sandbox) Hibernate(ctx context.Context) (Hibernation, error) {
	z, err := s.hibernate(ctx)
	if err != nil {
		return Hibernation{}, fmt.Errorf("hibernate sandbox %s: %w", s.ID, err)
	}
	log.G(ctx).WithFields(log.Fields{"memory": z.MemoryBytes, "image": z.ImageBytes}).Info("sandbox hibernates")
	return z.Hibernation, nil
}

func (s *Sandbox) hibernate(ctx context.Context) (*slept, error) {
	if _, err := s.agent(); err != nil {
		return nil, err
	}
	if s.isStopping() {
		return nil, fmt.Errorf("it is ending: %w", errdefs.ErrFailedPrecondition)
	}
	if hypervisor.OwnerOf(s.vm) != nil {
		return nil, fmt.Errorf("its memory is shared with other pods of its template "+
			"(the annotation io.katacontainers.config.factory.enable_template: \"false\" gives a pod its own): %w", errdefs.ErrFailedPrecondition)
	}
	quiet, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	z := &slept{counters: s.counters(quiet)}
	if err := s.calls.lock(quiet); err != nil {
		return nil, err
	}
	s.setSlept(z)
	if err := s.fallAsleep(ctx, z); err != nil {
		return nil, errors.Join(err, z.close(), s.continueAfter(ctx, err))
	}
	z.done.Store(true)
	s.calls.sleep()
	return z, nil
}

// setSlept sets what a sandbox that hibernates, or falls asleep, is woken from;
// nil for one that is awake.
func (s *Sandbox) setSlept(z *slept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slept = z
}

// counters reads the containers' statistics: while the sandbox hibernates they
// are asked for as before.
func (s *Sandbox) counters(ctx context.Context) map[string]*stats.Metrics {
	all := make(map[string]*stats.Metrics)
	for _, c := range s.Containers() {
		if m, err := c.Stats(ctx); err == nil {
			all[c.ID] = m
		}
	}
	return all
}

// fallAsleep pauses the machine and moves its memory into z. On an error the
// memory is as it was, and the machine may be paused.
func (s *Sandbox) fallAsleep(ctx context.Context, z *slept) error {
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	var err error
	if z.bell, err = s.listen(ctx); err != nil {
		return err
	}
	s.transport.Hold(true)
	pausing, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	err = s.vm.Pause(pausing)
	if err == nil {
		z.memory, err = s.vm.MemoryFiles(ctx)
	}
	if err == nil {
		z.image, err = openImage(s.opts.Config.Runtime.HibernatePath, z.memory)
	}
	if err != nil {
		return err
	}
	_, _ = rand.Read(z.key[:]) // never fails (crypto/rand)
	z.Since = time.Now().UTC()
	if err := s.storeImage(ctx, z); err != nil {
		return err
	}
	return s.giveBack(z)
}

// storeImage writes the memory to the image, and the image to the disk: otherwise
// it would be in the host's memory for a while. A call that comes meanwhile ends
// it: with much memory the call would wait long.
func (s *Sandbox) storeImage(ctx context.Context, z *slept) error {
	ctx, stop := s.calls.unlessWanted(ctx)
	defer stop()
	spec := s.spec()
	most := max(spec.MemoryMiB, spec.MaxMemoryMiB) << 20
	stored, err := within(ctx, func() (memfile.Stored, error) {
		stored, err := memfile.StoreImage(ctx, z.image, z.key, z.memory, most)
		if err != nil {
			return stored, err
		}
		if err := unix.Fdatasync(int(z.image.Fd())); err != nil {
			return stored, os.NewSyscallError("fdatasync", err)
		}
		_ = unix.Fadvise(int(z.image.Fd()), 0, 0, unix.FADV_DONTNEED) // only advice
		_, err = z.image.Seek(0, 0)
		return stored, err
	})
	z.MemoryBytes, z.ImageBytes = stored.Memory, stored.Image
	return err
}

// giveBack gives the memory back to the host. A part of it that cannot be given
// back, as QEMU may have it, leaves a guest without the others: it is lost then.
func (s *Sandbox) giveBack(z *slept) error {
	for i, f := range z.memory {
		if err := memfile.Discard(f); err != nil {
			if i > 0 {
				s.lose(err)
			}
			return err
		}
	}
	return nil
}

// continueAfter lets the machine run again after a hibernation that failed. A
// machine that does not is lost.
func (s *Sandbox) continueAfter(ctx context.Context, cause error) error {
	defer s.calls.open()
	defer s.setSlept(nil)
	if s.gone() {
		return nil
	}
	err := s.run(context.WithoutCancel(ctx))
	if err != nil {
		s.lose(fmt.Errorf("the machine does not run after a hibernation that failed (%w): %w", cause, err))
	}
	return err
}

// run lets the paused machine run, and sets the guest's clock, which was paused
// too. A guest that has a wrong clock runs on.
func (s *Sandbox) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	if err := s.vm.Resume(ctx); err != nil {
		return err
	}
	s.transport.Hold(false)
	if err := s.client.SetClock(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("the guest's clock is late by the time that the sandbox was paused")
	}
	return nil
}

// within calls f, but waits for it no longer than ctx: a disk may hang. What f
// uses must not be used again if it was left behind.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
