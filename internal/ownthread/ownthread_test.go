package ownthread_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// TestMain is on the main thread, and the goroutine that it starts just before it waits
// is the next one there.
func TestMain(m *testing.M) {
	if err := fromMain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// fromMain checks that threads end although the main thread is free for them.
func fromMain() error {
	for range 50 {
		tid := 0
		if err := ownthread.Run(func() error {
			tid = unix.Gettid()
			return nil
		}); err != nil {
			return err
		}
		if tid == os.Getpid() {
			return errors.New("it runs on the main thread")
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); errors.Is(err, os.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("thread %d does not end", tid)
			}
		}
	}
	return nil
}

// The same from goroutines that are on any thread.
func TestGo(t *testing.T) {
	for range 200 {
		tid := make(chan int)
		ownthread.Go(func() { tid <- unix.Gettid() })
		if got := <-tid; got == os.Getpid() {
			t.Fatal("it is the process's first thread")
		}
	}
}

func TestRun(t *testing.T) {
	want := errors.New("wrong")
	if err := ownthread.Run(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

// What a thread has changed is not seen by others.
func TestChangesEnd(t *testing.T) {
	before := unix.Umask(0)
	unix.Umask(before)
	err := ownthread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		unix.Umask(before ^ 0o77)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after := unix.Umask(before)
	if after != before {
		t.Errorf("umask %o, was %o", after, before)
	}
}
