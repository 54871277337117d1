package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// eachChange calls changed at once, and whenever the file may have changed since, until
// ctx is done. Several changes may be one call. A file that is removed does not change
// any more. It fails if the file cannot be watched.
func eachChange(ctx context.Context, path string, changed func()) error {
	events, err := watchFile(path)
	if err != nil {
		return err
	}
	defer events.Close()
	defer context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })()
	unread := make([]byte, 64*unix.SizeofInotifyEvent) // All are about the one file.
	for {
		changed()
		if _, err := events.Read(unread); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("wait for changes of %s: %w", path, err)
		}
	}
}

// watchFile returns an inotify instance that has the changes of one file. It does not
// block, so that reads wait in Go's poller: they take no thread, and a deadline ends them.
func watchFile(path string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		return nil, errors.Join(&os.PathError{Op: "watch", Path: path, Err: err}, events.Close())
	}
	return events, nil
}
