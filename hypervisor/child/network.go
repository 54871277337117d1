package child

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// enterNetwork moves the calling thread, which must not be used for anything
// else, into the network namespace at path.
func enterNetwork(path string) error {
	// O_NONBLOCK because opening a FIFO would block.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	err = unix.Setns(fd, unix.CLONE_NEWNET)
	if errors.Is(err, unix.EINVAL) { // setns(2)
		return fmt.Errorf("%s is not a network namespace: %w", path, err)
	}
	if err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}
