package virtcontainers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
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
	// rouseRate is how fast the memory of a sandbox that ends must be restored, in bytes
	// per second.
	rouseRate = 16 << 20
)

// Hibernation says since when a sandbox hibernates, and what that saves.
type Hibernation struct {
	Since time.Time `json:"since"`
	// MemoryBytes is how much of the host's memory the guest had.
	MemoryBytes uint64 `json:"memory_bytes"`
	// ImageBytes is how much of the host's disk it has instead.
	ImageBytes uint64 `json:"image_bytes"`
}

// Hibernate pauses the machine, saves the guest's memory to disk and returns it to
// the host, until a call to the guest or Wake. ctx bounds the call. After an error
// the sandbox continues to run. Hibernate fails with errdefs.ErrFailedPrecondition
// for a sandbox that hibernates already, or cannot, and with errdefs.ErrUnavailable
// while calls to the guest are in progress.
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
		return nil, errEnding
	}
	quiet, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	z := &slept{counters: s.counters(quiet)}
	if err := s.calls.lock(quiet); err != nil {
		return nil, err
	}
	s.setSlept(z)
	if err := s.fallAsleep(ctx, z); err != nil {
		// The files last: a disk that hangs keeps them, and must not keep the calls.
		return nil, errors.Join(err, z.hush(), s.continueAfter(ctx, err), z.close())
	}
	z.done.Store(true)
	return z, s.calls.sleep()
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
// memory is as it was, or the guest is lost, and the machine may be paused.
func (s *Sandbox) fallAsleep(ctx context.Context, z *slept) error {
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	var err error
	if z.bell, err = s.listen(ctx); err != nil {
		return err
	}
	if err := s.save(ctx, z); err != nil {
		return err
	}
	return s.giveBack(ctx, z)
}

// save pauses the machine and writes its memory to the image. A call that comes
// meanwhile ends that: with much memory, or a disk that hangs, it would wait long.
func (s *Sandbox) save(ctx context.Context, z *slept) error {
	ctx, stop := s.calls.unlessWanted(ctx)
	defer stop()
	var err error
	if z.memory, err = s.vm.MemoryParts(ctx); err != nil {
		return err
	}
	err = z.do(ctx, func() (err error) {
		z.image, err = openImage(s.opts.Config.Runtime.HibernatePath, z.memory)
		return err
	})
	if err != nil {
		return err
	}
	_, _ = rand.Read(z.key[:]) // never fails (crypto/rand)
	z.Since = time.Now().UTC()
	s.transport.Hold(true)
	pausing, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := s.vm.Pause(pausing); err != nil {
		return err
	}
	if err := s.files.Settled(); err != nil {
		return fmt.Errorf("it is busy: it waits for files of the host: %w: %w", err, errdefs.ErrUnavailable)
	}
	return s.storeImage(ctx, z)
}

// storeImage writes the memory to the image, and the image to the disk: otherwise
// it would be in the host's memory for a while.
//
// If ctx ends while the disk hangs, the guest runs again before the writing has ended.
// That does no harm: it only reads the memory, for an image that is not used, and the
// memory is not given back then.
func (s *Sandbox) storeImage(ctx context.Context, z *slept) error {
	most := s.sizing.MostMiB() << 20
	return z.do(ctx, func() error {
		stored, err := memfile.StoreImage(ctx, z.image, z.key, z.memory, most)
		if err != nil {
			return err
		}
		z.MemoryBytes, z.ImageBytes = stored.Memory, stored.Image
		if err := unix.Fdatasync(int(z.image.Fd())); err != nil {
			return os.NewSyscallError("fdatasync", err)
		}
		_ = unix.Fadvise(int(z.image.Fd()), 0, 0, unix.FADV_DONTNEED) // only advice
		_, err = z.image.Seek(0, io.SeekStart)
		return err
	})
}

// giveBack gives the memory back to the host, unless a call comes meanwhile: QEMU may
// take long. If it fails, as a QEMU that was taken over can have it do, the guest gets
// again what it may lack.
func (s *Sandbox) giveBack(ctx context.Context, z *slept) error {
	unwanted, stop := s.calls.unlessWanted(ctx)
	defer stop()
	for _, part := range z.memory {
		if err := part.Discard(unwanted); err != nil {
			return errors.Join(err, s.putBack(context.WithoutCancel(ctx), z))
		}
	}
	return nil
}

// putBack writes the image to memory of which a part was given back; the rest is as in
// the image. After an error the guest is lost.
func (s *Sandbox) putBack(ctx context.Context, z *slept) error {
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	err := z.restore(ctx)
	if err != nil {
		s.lose(fmt.Errorf("the guest's memory could not be restored: %w", err))
	}
	return err
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
		s.lose(fmt.Errorf("the machine did not resume after a failed hibernation (%w): %w", cause, err))
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
	if err := s.setClock(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("the guest's clock is late by the time that the sandbox was paused")
	}
	return nil
}
