package reverse

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// openPath refers to a file without opening it (open(2), O_PATH): so a path can
// be longer than a socket address (108 bytes), and the file stays the same. how is the
// resolve field of openat2(2).
func openPath(path string, how uint64) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: how})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// maxLinks is how many links a path may have, as for the kernel (MAXSYMLINKS of Linux's
// include/linux/namei.h).
const maxLinks = 40

// resolve returns an absolute path without symbolic links. What does not exist yet stays
// as it is. A path through a link of /proc, such as /proc/1/root, fails with ELOOP: its
// text does not say where it leads.
func resolve(path string) (string, error) {
	f, err := openPath(path, unix.RESOLVE_NO_MAGICLINKS)
	if err == nil {
		_ = f.Close()
	} else if errors.Is(err, unix.ELOOP) {
		return "", err
	}
	done, left, links := "/", strings.Split(path, "/"), 0
	for len(left) > 0 {
		name := left[0]
		left = left[1:]
		done = filepath.Join(done, name) // .. too: done has no links
		target, err := os.Readlink(done)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue // no link, or missing
		}
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", &os.PathError{Op: "resolve", Path: path, Err: unix.ELOOP}
		}
		done = filepath.Dir(done)
		if filepath.IsAbs(target) {
			done = "/"
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return done, nil
}
