package virtcontainers_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
)

// clogImage has the pod's image hang after its first bytes, until release, as on a
// disk that hangs. reached waits until they are written.
func (s *sleeper) clogImage() (reached, release func()) {
	s.t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		s.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = unix.Close(pipe[0]) })
	s.t.Cleanup(release)
	defer unix.Close(pipe[1])
	room, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := unix.Dup3(pipe[1], s.imageFile(), unix.O_CLOEXEC); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		eventually(s.t, "the image is written", func() bool {
			n, err := unix.IoctlGetInt(pipe[0], unix.TIOCINQ) // pipe(7), FIONREAD
			return err != nil || n == room
		})
	}, release
}

// incompressible gives the pod such memory.
func (s *sleeper) incompressible() {
	s.t.Helper()
	_, _ = rand.Read(s.memory)
	if err := s.vm.SetMemory(s.memory); err != nil {
		s.t.Fatal(err)
	}
}

// pauseAtOnce pauses a container. It fails if that takes long.
func pauseAtOnce(c *virtcontainers.Container) error {
	began := time.Now()
	err := c.Pause(context.Background(), func() {})
	if took := time.Since(began); err == nil && took > patience/4 {
		err = fmt.Errorf("it took %v", took)
	}
	return err
}

// A call that comes while the disk hangs with a part of the image does not wait for
// the disk.
func TestCallWhileImageHangs(t *testing.T) {
	s := newSleeper(t)
	s.incompressible()
	c, called := s.container("c1"), make(chan error, 1)
	s.host.Monitor.Hook(fake.StepPause, func(context.Context, *fake.VM) error {
		reached, release := s.clogImage()
		go func() {
			defer release()
			reached()
			err := pauseAtOnce(c)
			s.checkAwake()
			called <- err
		}()
		return nil
	})
	if _, err := s.Hibernate(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "a call to pause container c1 needs it") {
		t.Errorf("error %v", err)
	}
	if err := await(t, "the call", called); err != nil {
		t.Errorf("the call: %v", err)
	}
	s.checkAwake()
}

// What a pod is falling asleep with is closed by the call that has it do so, and only
// once: the pod's end, which may come before that, leaves it alone.
func TestPodEndsWhileFallingAsleep(t *testing.T) {
	s := newSleeper(t)
	s.host.Monitor.Hook(fake.StepPause, func(_ context.Context, vm *fake.VM) error {
		vm.Die(hypervisor.ErrPowerOff)
		s.awaitStopped()
		return errInjected
	})
	if _, err := s.Hibernate(t.Context()); !errors.Is(err, errInjected) || errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want only %v", err, errInjected)
	}
	s.observer.expect(t, "c1=255")
}
