package container

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// keyringOf returns libcontainer's name for the session keyring of a container.
func keyringOf(id string) string { return "_ses." + id }

// keysAreUsedUp reports whether root may have no more keys, and the container has no
// session keyring yet. The containers of a pod share root's keys (keyrings(7),
// /proc/sys/kernel/keys), and libcontainer's stage starts no process without a new
// keyring, unless its configuration says that it needs none.
func keysAreUsedUp(id string) bool {
	err := ownthread.Run(func() error { // The thread leaves the keyring when it ends.
		_, err := unix.KeyctlJoinSessionKeyring(keyringOf(id))
		return err
	})
	return errors.Is(err, unix.EDQUOT)
}
