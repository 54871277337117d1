// Package vmuser gives each virtual machine of the host its own user id from a
// range. There is no list: a process that has an id holds a lock on one byte of
// a file, which the kernel releases when the process ends, even by SIGKILL.
package vmuser

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Range is the ids from First on, Count of them.
type Range struct{ First, Count uint32 }

// User is a user id that no other holder of the same file has. Its group has the
// same number.
type User struct {
	id   uint32
	file *os.File
}

// Take reserves an id from a range. file is made if it is missing, and never
// removed; all processes of the host must use the same file. It fails with
// errdefs.ErrResourceExhausted when all are taken. It does not block.
func Take(file string, ids Range) (*User, error) {
	u, err := take(file, ids)
	if err != nil {
		return nil, fmt.Errorf("take a user id for the virtual machine: %w", err)
	}
	return u, nil
}

func take(file string, ids Range) (*User, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// Not the lowest, so that a released id is not reused immediately.
	start := uint32(0)
	if ids.Count > 0 {
		start = rand.Uint32N(ids.Count)
	}
	for i := range ids.Count {
		id := ids.First + (start+i)%ids.Count
		taken, err := lock(f, id)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if taken {
			return &User{id: id, file: f}, nil
		}
	}
	_ = f.Close()
	return nil, fmt.Errorf("all %d from %d on are in use: %w", ids.Count, ids.First, errdefs.ErrResourceExhausted)
}

// lock locks the byte at that offset, even beyond the end of the file, with an
// open file description lock (fcntl(2)).
func lock(f *os.File, id uint32) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET, Start: int64(id), Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return true, nil
}

// ID returns the user's id, which is also its group's.
func (u *User) ID() uint32 { return u.id }

// Release releases the id. No process may still run under it.
func (u *User) Release() error { return u.file.Close() }

// Usable reports whether this process could become each of the ids: in a user
// namespace it may not (user_namespaces(7)).
func Usable(ids Range) bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && mapped(string(data), ids)
}

// mapped reports whether one line of a uid_map has the whole range.
func mapped(table string, ids Range) bool {
	lines := bufio.NewScanner(strings.NewReader(table))
	for lines.Scan() {
		var inside, outside, count uint64
		if n, _ := fmt.Sscan(lines.Text(), &inside, &outside, &count); n != 3 || count > math.MaxUint32 {
			continue
		}
		if uint64(ids.First) >= inside && uint64(ids.First)+uint64(ids.Count) <= inside+count {
			return true
		}
	}
	return false
}
