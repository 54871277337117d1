package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// reclaimTries is how often what a container uses may be made smaller before a lower
// limit is refused; the kernel has as many tries when it sets one (mm/memcontrol.c,
// MAX_RECLAIM_RETRIES).
const reclaimTries = 16

// fitMemory makes what a cgroup uses fit a new limit of memory, in bytes, by reclaiming
// its page cache. It fails with ErrFailedPrecondition if more than that is in use:
// cgroup v2 would set the limit and kill the container's processes
// (Documentation/admin-guide/cgroup-v2.rst, "memory.max"). Version 1 refuses it, as
// users of engines expect it. Once ctx has ended it tries no more.
func fitMemory(ctx context.Context, dir string, limit int64) error {
	for range reclaimTries {
		used, err := memoryUsed(dir)
		if err != nil || used <= limit {
			return err
		}
		if err := lateUpdate(ctx); err != nil {
			return err
		}
		if err := reclaim(dir, used-limit); errors.Is(err, fs.ErrNotExist) { // before Linux 5.19
			break
		} else if err != nil {
			return err
		}
	}
	used, err := memoryUsed(dir)
	if err != nil || used <= limit {
		return err
	}
	return fmt.Errorf("linux.resources.memory.limit: set %d bytes: %d bytes are in use: %w", limit, used, errdefs.ErrFailedPrecondition)
}

// reclaim has the kernel make what a cgroup uses some bytes less, if it can. It does not
// use an os.File, which would wait until the kernel takes the number after EAGAIN.
func reclaim(dir string, bytes int64) error {
	fd, err := unix.Open(filepath.Join(dir, "memory.reclaim"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("reclaim memory: %w", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(strconv.FormatInt(bytes, 10)))
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) { // EAGAIN: fewer were reclaimed
		return fmt.Errorf("reclaim memory: %w", err)
	}
	return nil
}

func memoryUsed(dir string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, "memory.current"))
	if err != nil {
		return 0, fmt.Errorf("read what memory is in use: %w", err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read what memory is in use: %w", err)
	}
	return used, nil
}
