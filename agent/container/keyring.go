package container

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// keyringOf returns libcontainer's name for the session keyring of a container.
func keyringOf(id string) string { return "_ses." + id }

// keysAreUsedUp reports whether root may have no more keys, and the container has no
// session keyring yet. The containers of a pod share root's keys (keyrings(7),
// /proc/sys/kernel/keys), and libcontainer's stage starts no process without a new
// keyring, unless its configuration says that it needs none.
func keysAreUsedUp(id string) bool {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // Until its end: the thread ends too, and leaves the keyring.
		_, err := unix.KeyctlJoinSessionKeyring(keyringOf(id))
		result <- err
	}()
	return errors.Is(<-result, unix.EDQUOT)
}
