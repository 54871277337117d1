package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// SetHostname sets the hostname of the UTS namespace pinned at path. It reports
// whether the name has changed.
func SetHostname(path, name string) (changed bool, err error) {
	ns, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("set hostname %q: %w", name, err)
	}
	defer ns.Close()
	err = ownthread.Run(func() (err error) {
		changed, err = nameNamespace(ns, name)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("set hostname %q: %w", name, err)
	}
	return changed, nil
}

// nameNamespace moves the calling thread into a UTS namespace and sets its
// hostname.
func nameNamespace(ns *os.File, name string) (changed bool, err error) {
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWUTS); err != nil {
		return false, fmt.Errorf("enter %s: %w", ns.Name(), err)
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false, fmt.Errorf("read the name it has: %w", err)
	}
	if unix.ByteSliceToString(uts.Nodename[:]) == name {
		return false, nil
	}
	return true, unix.Sethostname([]byte(name))
}
