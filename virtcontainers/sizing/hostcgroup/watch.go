package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// WatchParentMemoryLimit calls changed after each write to the files that
// ParentMemoryLimit reads, until ctx ends; then it returns nil. Several writes may be
// one call. Writes of processes to a cgroup's files are reported by inotify(7) as those
// to other files are; what the kernel changes itself is not.
func WatchParentMemoryLimit(ctx context.Context, root, cgroupsPath string, changed func()) error {
	files, err := parentMemoryFiles(root, cgroupsPath)
	if err != nil {
		return fmt.Errorf("watch the pod's memory limit: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the pod's memory limit: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	for _, file := range files {
		if _, err := unix.InotifyAddWatch(fd, file, unix.IN_MODIFY); err != nil {
			return errors.Join(fmt.Errorf("watch the pod's memory limit: %s: %w", file, err), events.Close())
		}
	}
	var reader sync.WaitGroup
	defer reader.Wait()
	defer func() { _ = events.Close() }() // ends the reader
	reader.Go(func() {
		for buf := make([]byte, 4096); ; {
			if _, err := events.Read(buf); err != nil {
				return
			}
			changed()
		}
	})
	<-ctx.Done()
	return nil
}

// parentMemoryFiles lists the files that exist of those that ParentMemoryLimit reads.
func parentMemoryFiles(root, cgroupsPath string) ([]string, error) {
	var files []string
	_, err := leastLimit(root, cgroupsPath, func(h hierarchy, dir string) (uint64, error) {
		file := filepath.Join(dir, h.memoryFile())
		if _, err := os.Stat(file); err == nil {
			files = append(files, file)
		}
		return noLimit, nil
	})
	return files, err
}
