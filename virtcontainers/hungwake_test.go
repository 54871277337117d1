package virtcontainers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
)

// hangImage has the pod's image hang after its first byte, until the test ends, as on
// a disk that hangs. reached waits until that is read.
func (s *sleeper) hangImage() (reached func()) {
	s.t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = unix.Close(pipe[1]) })
	defer unix.Close(pipe[0])
	if err := unix.Dup3(pipe[0], s.imageFile(), unix.O_CLOEXEC); err != nil {
		s.t.Fatal(err)
	}
	if _, err := unix.Write(pipe[1], []byte{0}); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		eventually(s.t, "the image is read", func() bool {
			unread, err := unix.IoctlGetInt(pipe[1], unix.TIOCINQ) // pipe(7), FIONREAD
			return err != nil || unread == 0
		})
	}
}

// imageFile finds this process's descriptor of the pod's image, which has no name.
func (s *sleeper) imageFile() int {
	s.t.Helper()
	const files = "/proc/self/fd"
	entries, err := os.ReadDir(files)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(files, e.Name())); err == nil && strings.HasPrefix(target, s.dir+"/") {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				s.t.Fatal(err)
			}
			return fd
		}
	}
	s.t.Fatal("the pod has no image")
	return -1
}

// A pod whose disk hangs while it wakes can be stopped.
func TestStopWhileDiskHangs(t *testing.T) {
	t.Parallel() // it waits
	s := newSleeper(t)
	s.sleeps()
	reached := s.hangImage()
	woken := make(chan error, 1)
	go func() { woken <- s.Wake(context.Background()) }()
	reached()
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	s.observer.expect(t, "c1=137")
	if err := await(t, "the call that woke it", woken); err == nil {
		t.Error("it woke without its memory")
	}
}

// hangRemoval has the removal of the pod's image hang, once its memory is read back,
// until release.
func (s *sleeper) hangRemoval() (release func()) {
	s.t.Helper()
	file, release := virtcontainers.HangingClose(s.t)
	image, err := s.imageFile(), error(nil)
	once := sync.OnceFunc(func() { err = errors.Join(unix.Dup3(int(file.Fd()), image, unix.O_CLOEXEC), file.Close()) })
	s.host.Monitor.Hook(fake.StepResume, func(context.Context, *fake.VM) error {
		once()
		return err
	})
	return release
}

// A pod runs as soon as its memory is back: it wakes, and sleeps again, while the disk
// is slow to remove the image. Its end waits for that.
func TestWakesBeforeImageIsRemoved(t *testing.T) {
	s := newSleeper(t)
	s.sleeps()
	release := s.hangRemoval()
	began := time.Now()
	if err := s.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > patience/4 {
		t.Errorf("waking took %v", took)
	}
	s.checkAwake()
	s.sleeps()
	if err := s.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.checkAwake()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	select {
	case <-stopped:
		t.Error("it has stopped with a file that is being closed")
	case <-time.After(200 * time.Millisecond):
	}
	release()
	if err := await(t, "the pod's end", stopped); err != nil {
		t.Error(err)
	}
	s.observer.expect(t, "c1=137")
}
