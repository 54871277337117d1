package virtcontainers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
)

const (
	// quietWait bounds how long Hibernate asks for statistics, and waits for calls
	// to the guest that are under way.
	quietWait = 10 * time.Second
	// pauseTimeout bounds stopping the machine, and letting it run again.
	pauseTimeout = 30 * time.Second
)

// hibernate has the sandbox hibernate, as Sandbox.Hibernate says.
func (s *sleeper) hibernate(ctx context.Context) (Hibernation, error) {
	quiet, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	z := &slept{counters: s.pod.counters(quiet)}
	if err := s.lock(quiet, z); err != nil {
		return Hibernation{}, err
	}
	err := s.fallAsleep(ctx, z)
	if err == nil {
		err = s.sleep()
	}
	if err != nil {
		// The files last: a disk that hangs keeps them, and must not keep the calls.
		return Hibernation{}, errors.Join(err, z.hush(), s.continueAfter(ctx, err), z.close())
	}
	return z.Hibernation, nil
}

// fallAsleep pauses the machine and moves its memory into z. A call that comes
// meanwhile ends that: with much memory, or a disk or a QEMU that hangs, it would wait
// long. On an error the memory is as it was, or the guest is lost, and the machine may
// be paused.
func (s *sleeper) fallAsleep(ctx context.Context, z *slept) error {
	ctx, stop := s.machine.whileAlive(ctx)
	defer stop()
	var err error
	if z.bell, err = s.pod.listen(ctx); err != nil {
		return err
	}
	ctx, quit := s.unlessWanted(ctx)
	defer quit()
	if err := s.save(ctx, z); err != nil {
		return err
	}
	return s.giveBack(ctx, z)
}

// save pauses the machine and writes its memory to the image.
func (s *sleeper) save(ctx context.Context, z *slept) error {
	var err error
	if z.memory, err = s.machine.vm.MemoryParts(ctx); err != nil {
		return err
	}
	err = z.do(ctx, func() (err error) {
		z.image, err = openImage(s.machine.config.Runtime.HibernatePath, z.memory)
		return err
	})
	if err != nil {
		return err
	}
	_, _ = rand.Read(z.key[:]) // never fails (crypto/rand)
	z.Since = time.Now().UTC()
	s.machine.transport.Hold(true)
	pausing, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := s.machine.vm.Pause(pausing); err != nil {
		return err
	}
	if err := s.machine.files.Settled(); err != nil {
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
func (s *sleeper) storeImage(ctx context.Context, z *slept) error {
	most := s.pod.mostMiB() << 20
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

// giveBack gives the memory back to the host. If it fails, as a QEMU that was taken
// over can have it do, the guest gets again what it may lack.
func (s *sleeper) giveBack(ctx context.Context, z *slept) error {
	for _, part := range z.memory {
		if err := part.Discard(ctx); err != nil {
			return errors.Join(err, s.putBack(context.WithoutCancel(ctx), z))
		}
	}
	return nil
}

// putBack writes the image to memory of which a part was given back; the rest is as in
// the image. After an error the guest is lost.
func (s *sleeper) putBack(ctx context.Context, z *slept) error {
	ctx, stop := s.machine.whileAlive(ctx)
	defer stop()
	err := z.restore(ctx)
	if err != nil {
		s.pod.lose(fmt.Errorf("the guest's memory could not be restored: %w", err))
	}
	return err
}

// continueAfter lets the machine run again after a hibernation that failed. A
// machine that does not is lost.
func (s *sleeper) continueAfter(ctx context.Context, cause error) error {
	defer s.open()
	if s.pod.gone() {
		return nil
	}
	err := s.run(context.WithoutCancel(ctx))
	if err != nil {
		s.pod.lose(fmt.Errorf("the machine did not resume after a failed hibernation (%w): %w", cause, err))
	}
	return err
}

// run lets the paused machine run, and sets the guest's clock, which was paused
// too. A guest that has a wrong clock runs on.
func (s *sleeper) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	ctx, stop := s.machine.whileAlive(ctx)
	defer stop()
	if err := s.machine.vm.Resume(ctx); err != nil {
		return err
	}
	s.machine.transport.Hold(false)
	if err := s.pod.setClock(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("the guest's clock is late by the time that the sandbox was paused")
	}
	return nil
}
