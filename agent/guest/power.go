package guest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// syncTimeout bounds the writing out of file systems: a share whose host side
// is dead never answers.
const syncTimeout = 2 * time.Second

// PowerOff writes out file systems, for syncTimeout at most, and switches the
// machine off. It returns only on failure.
func PowerOff() error {
	written := make(chan struct{})
	go func() {
		defer close(written)
		unix.Sync()
	}()
	select {
	case <-written:
	case <-time.After(syncTimeout):
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	return nil
}
