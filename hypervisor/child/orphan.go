package child

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errOrphaned is why a stage does not execute its program.
var errOrphaned = errors.New("the parent has ended")

// checkParent returns errOrphaned if the parent has ended. The parent is the only
// reader of stderr, and a pipe without a reader shows POLLERR (poll(2)). A stage calls
// it once PDEATHSIG is set: if the parent was killed before that, no signal will come.
// getppid(2) does not show a parent in another PID namespace.
func checkParent() error {
	fds := []unix.PollFd{{Fd: int32(unix.Stderr)}}
	for {
		_, err := unix.Poll(fds, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("find parent: %w", err)
		}
	}
	if fds[0].Revents&unix.POLLERR != 0 {
		return errOrphaned
	}
	return nil
}

// dieWithParent sets PDEATHSIG again, because changing the user has cleared it
// (prctl(2), PR_SET_PDEATHSIG).
func dieWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the parent-death signal: %w", err)
	}
	return checkParent()
}
