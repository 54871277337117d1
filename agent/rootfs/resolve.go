package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// dirMode is the mode of the directories that a missing mountpoint needs.
	dirMode = 0o755
	// maxLinks bounds how many links a path may lead through, as the kernel does
	// (path_resolution(7)).
	maxLinks = 40
	// maxTries bounds how often a path is resolved anew while directories in the
	// root are renamed (openat2(2), EAGAIN).
	maxTries = 1000
)

// clean makes a path absolute and lexically clean.
func clean(name string) string { return path.Clean("/" + name) }

// inside returns the clean path of name in the root. Like libcontainer it takes
// a path that begins with the root's own for one in the root.
func (r *Root) inside(name string) string {
	name = clean(name)
	if rest, ok := cutDir(name, r.path); ok {
		return clean(rest)
	}
	return name
}

// cutDir removes a directory from the beginning of a path in it. It returns ""
// for the directory itself.
func cutDir(name, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(name, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// open opens a path in the root. No link in it leads out of the root.
func (r *Root) open(name string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := openat2(r.fd, name, &how)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

func openat2(dir int, name string, how *unix.OpenHow) (fd int, err error) {
	for range maxTries {
		fd, err = unix.Openat2(dir, name, how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, err
}

// mkdirAll opens the directory at a clean path, and makes what of it is missing.
func (r *Root) mkdirAll(name string) (int, error) {
	fd, err := r.open(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	return r.makeMissing(name)
}

// makeMissing is mkdirAll for a directory that does not exist. Like libcontainer
// it makes the directory to which a dangling link leads, as in images whose
// /var/run leads to a /run that they do not have.
func (r *Root) makeMissing(name string) (int, error) {
	name, err := r.follow(name)
	if err != nil {
		return -1, err
	}
	dir := r.fd
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		next, err := makeDir(dir, part)
		if dir != r.fd {
			unix.Close(dir)
		}
		if err != nil {
			return -1, fmt.Errorf("make directory %s: %w", name, err)
		}
		dir = next
	}
	return dir, nil
}

// makeDir opens a directory in dir, and makes it if it is missing. It follows no
// link.
func makeDir(dir int, name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC}
	fd, err := openat2(dir, name, &how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := unix.Mkdirat(dir, name, dirMode); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return openat2(dir, name, &how)
}

// parent opens the directory of a clean path, and makes it if it is missing. It
// returns the name in it. If that name is a link, it returns the directory and
// the name to which the link leads.
func (r *Root) parent(name string) (dir int, base string, err error) {
	if dir, base, err = r.split(name); err != nil {
		return -1, "", err
	}
	if !isLink(dir, base) {
		return dir, base, nil
	}
	unix.Close(dir)
	if name, err = r.follow(name); err != nil {
		return -1, "", err
	}
	return r.split(name)
}

func (r *Root) split(name string) (dir int, base string, err error) {
	if name == "/" {
		return -1, "", errors.New("path is the root")
	}
	dir, err = r.mkdirAll(path.Dir(name))
	return dir, path.Base(name), err
}

// follow returns the path to which name leads in the root when all of its links
// are followed, whether or not something exists there. The path is a proposal:
// the root may have changed since.
func (r *Root) follow(name string) (string, error) {
	done, rest, links := "/", name, 0
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		next := path.Join(done, part) // Handles ".." and "".
		target, isLink := r.link(next)
		if !isLink {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("follow %s: %w", name, unix.ELOOP)
		}
		if path.IsAbs(target) {
			done = "/"
		}
		rest = target + "/" + rest
	}
	return done, nil
}

// leadsToOwn returns the path to which name leads in the root, and reports whether it
// depends on the process that resolves it (hasOwnProcess).
func (r *Root) leadsToOwn(name string) (at string, ok bool) {
	at, err := r.follow(name)
	return at, err == nil && hasOwnProcess([]string{at})
}

// link reads the link at a path in the root.
func (r *Root) link(name string) (target string, isLink bool) {
	fd, err := r.open(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	target, err = readLink(fd, "")
	return target, err == nil
}
