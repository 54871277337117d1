package guest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// PowerOff writes out file systems and switches the machine off. It returns
// only on failure.
func PowerOff() error {
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	return nil
}
