package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// settleTimeout bounds flushing file systems: a share whose host side is dead
// never answers.
const settleTimeout = 8 * time.Second

// PowerOff flushes file systems, makes those on disks read-only, so that they
// are consistent at the next mount, and powers the machine off. It takes
// settleTimeout at most, and returns only on failure.
func PowerOff() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		settleDisks(ctx)
	}()
	select {
	case <-settled:
	case <-ctx.Done():
		log.G(ctx).Warn("powering off before all file systems are written out")
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	return nil
}

// settleDisks makes file systems on disks read-only, which flushes them, and then flushes
// all other caches. A file system that is still written to stays writable, but is flushed.
// The disks are first: a sync waits for the host's file systems behind a share.
func settleDisks(ctx context.Context) {
	makeDisksReadOnly(ctx)
	unix.Sync() // includes block devices without a file system
}

func makeDisksReadOnly(ctx context.Context) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		log.G(ctx).WithError(err).Warn("file systems stay as they are")
		return
	}
	done := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) <= 5 || done[fields[2]] || strings.HasPrefix(fields[2], "0:") { // without a device: mountinfo in proc(5)
			continue
		}
		done[fields[2]] = true
		if err := makeReadOnly(unescape(fields[4])); err != nil {
			log.G(ctx).WithError(err).WithField("disk", fields[2]).Warn("file system stays writable")
		}
	}
}

// makeReadOnly makes the whole file system read-only, in all its mounts.
func makeReadOnly(at string) error {
	err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	if err == nil {
		return nil
	}
	dir, e := os.Open(at)
	if e != nil {
		return errors.Join(err, e)
	}
	defer dir.Close()
	return errors.Join(err, unix.Syncfs(int(dir.Fd())))
}
