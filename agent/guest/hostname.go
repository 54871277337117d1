package guest

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// SetHostname names the UTS namespace pinned at path. It reports whether the
// name was another one before.
func SetHostname(path, name string) (changed bool, err error) {
	ns, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("set hostname: %w", err)
	}
	defer ns.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		done <- func() error {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWUTS); err != nil {
				return fmt.Errorf("enter %s: %w", path, err)
			}
			var uts unix.Utsname
			if err := unix.Uname(&uts); err != nil {
				return fmt.Errorf("read hostname: %w", err)
			}
			if changed = unix.ByteSliceToString(uts.Nodename[:]) != name; !changed {
				return nil
			}
			return unix.Sethostname([]byte(name))
		}()
	}()
	if err := <-done; err != nil {
		return false, fmt.Errorf("set hostname %q: %w", name, err)
	}
	return changed, nil
}
