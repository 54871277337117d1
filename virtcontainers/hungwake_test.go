package virtcontainers_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
