package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/internal/mountns"
)

// spaceOptions bound the host's memory for directories and mount points.
const spaceOptions = "mode=0711,size=1m,nr_inodes=16384"

// space is a private mount namespace with a file system for mount points and,
// below it, what is mounted for the guest. It has none of the host's mounts,
// and the host's namespace has none of its mounts: a volume's directory can be
// removed on the host while a guest uses it, and nothing needs unmounting when
// the process dies.
//
// One thread stays in it. The thread's root directory is the space's: no path
// leads out of it.
type space struct {
	thread *child.Thread
	// root is the space's root directory, opened with O_PATH.
	root *os.File
	tid  int
}

// newSpace makes a space. scratch is any directory of the host; it is not
// changed.
func newSpace(scratch string) (_ *space, err error) {
	s := &space{}
	if s.thread, err = child.StartThread(func() error { return s.enter(scratch) }); err != nil {
		return nil, fmt.Errorf("make mount namespace: %w", err)
	}
	return s, nil
}

// enter moves the calling thread into a new namespace and leaves all of the
// host's mounts behind.
func (s *space) enter(scratch string) error {
	s.tid = unix.Gettid()
	if err := mountns.Enter(scratch, spaceOptions); err != nil {
		return err
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	s.root = os.NewFile(uintptr(fd), "share")
	return nil
}

// do runs f on the space's thread: every path that f uses is resolved in the
// space. f must not wait for anything but the kernel. release closes what f uses
// (child.Thread.Do).
func (s *space) do(ctx context.Context, f func() error, release ...func() error) error {
	return explain(s.thread.Do(ctx, f, release...))
}

// ask is like do, for an f that returns a value: f must not write the caller's
// variables, because the caller may have given up. Then drop gets the value
// (child.Ask).
func ask[T any](ctx context.Context, s *space, f func() (T, error), drop func(T) error) (T, error) {
	value, err := child.Ask(ctx, s.thread, f, drop)
	return value, explain(err)
}

// explain makes the end of the thread that of the share.
func explain(err error) error {
	if errors.Is(err, child.ErrThreadClosed) {
		return fmt.Errorf("the share is closed: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	return err
}

// mounts lists the space's mounts at and below a path in it.
func (s *space) mounts(path string) ([]*mountinfo.Info, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/mountinfo", s.tid))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, mountinfo.PrefixFilter(path))
}

// closeWait bounds how long close waits for the thread. That depends on nothing
// but its current call.
const closeWait = 2 * time.Second

// close ends the thread. The namespace and its mounts end with their last user.
// It may be called once.
func (s *space) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	return errors.Join(s.thread.Close(ctx), s.root.Close())
}
