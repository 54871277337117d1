package container

import (
	"context"
	"fmt"
	"os"
	"time"
)

// eachChange calls changed at once, and whenever the kernel may have changed the file
// since, until ctx is done. Several changes may be one call. The file is of cgroup v2,
// whose event files can be polled (Linux's cgroup-v2.rst; fs/kernfs/file.c,
// kernfs_notify): that takes no inotify instance, of which root has few, for the
// containers too. A file that is removed does not change any more. It fails if the file
// cannot be polled.
func eachChange(ctx context.Context, path string, changed func()) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open event file: %w", err)
	}
	defer file.Close()
	polled, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("poll %s: %w", path, err)
	}
	defer context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })()
	// One Read for all changes: each begins by forgetting those before it.
	err = polled.Read(func(uintptr) (done bool) {
		changed()
		return false
	})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("wait for changes of %s: %w", path, err)
}
