package passthrough

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// What is done as the owner of a file leaves the thread as the server, also when the
// thread cannot act as that owner.
func TestAsOwnerEndsAsServer(t *testing.T) {
	newLinked(t, 1, func(l linked) {
		n := l.look(rootID, "a")
		for _, test := range []struct {
			owner user
			as    []user
			errno unix.Errno
		}{
			{user{12345, 12345}, []user{root, {12345, 12345}}, unix.EACCES},
			{user{^uint32(0), 12345}, []user{root}, unix.EINVAL},
			{user{12345, ^uint32(0)}, []user{root}, unix.EINVAL},
		} {
			owner := test.owner
			var as []user
			errno := l.fs.orAsOwner(l.th, n, func() user { return owner }, func() unix.Errno {
				as = append(as, fsUser())
				return unix.EACCES
			})
			if errno != test.errno || !slices.Equal(as, test.as) {
				t.Errorf("owner %v: %v, done as %v; want %v, as %v", owner, errno, as, test.errno, test.as)
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
