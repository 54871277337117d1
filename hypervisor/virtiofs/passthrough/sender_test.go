package passthrough

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What is done as the owner of a file leaves the thread as the server, also when the
// thread cannot act as that owner.
func TestAsOwnerEndsAsServer(t *testing.T) {
	newLinked(t, 1, func(l linked) {
		n := l.look(rootID, "a")
		for _, owner := range []user{{12345, 12345}, {^uint32(0), 12345}, {12345, ^uint32(0)}} {
			var as []user
			errno := l.fs.orAsOwner(l.th, n, func() user { return owner }, func() unix.Errno {
				as = append(as, fsUser())
				return unix.EACCES
			})
			if errno == 0 || as[0] != root || len(as) == 2 && as[1] != owner {
				t.Errorf("owner %v: %v, done as %v", owner, errno, as)
			}
			if now := fsUser(); now != root || l.th.server != root || l.th.effective != keepSpecial {
				t.Errorf("owner %v: afterwards the thread is %v and serves as %v, with capabilities %#x", owner, now, l.th.server, l.th.effective)
			}
		}
	})
}

// fsUser returns as what the kernel lets this thread act on files.
func fsUser() user {
	uid, _ := unix.SetfsuidRetUid(-1)
	gid, _ := unix.SetfsgidRetGid(-1)
	return user{uint32(uid), uint32(gid)}
}
