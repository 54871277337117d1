package descriptors

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// KeepFromChildren closes all descriptors from the number first on in the processes
// that this one executes later. Those that are opened meanwhile by others must be
// close-on-exec, as Go's are.
func KeepFromChildren(first int) error {
	if unix.CloseRange(uint(first), math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// Before Linux 5.11 there is no such flag, and a container engine's filter of
	// system calls may not know the call.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list open files: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd) // it may be closed by now, as that of the directory is
		}
	}
	return nil
}
