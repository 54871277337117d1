package container

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// keepTimeout bounds how long it may take to find the mounts of the share: the
// way to one may lead through a file system that hangs.
const keepTimeout = 2 * time.Second

// shareType is the type of the share's file systems.
const shareType = "virtiofs"

// holdShare opens one mount of each of the share's file systems in a mount namespace.
// While these descriptors are open the file systems stay mounted, whatever becomes of
// the namespace. On an error some may be open.
func holdShare(namespace int) error {
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /proc: %w", err)
	}
	thread, err := newThread(0)
	if err != nil {
		return errors.Join(err, unix.Close(proc))
	}
	done := make(chan error, 1)
	go func() {
		defer unix.Close(proc)
		defer thread.close()
		done <- thread.do(func() error {
			if err := unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("join the mount namespace: %w", err)
			}
			return openShare(proc)
		})
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(keepTimeout):
		return fmt.Errorf("find the share's mounts: a file system did not answer within %v", keepTimeout)
	}
}

// openShare opens a mount of each of the share's file systems that the calling thread
// sees; proc is the agent's own /proc. The descriptors are never closed.
func openShare(proc int) error {
	mounts, err := ownMounts(proc)
	if err != nil {
		return err
	}
	type device struct{ major, minor int }
	held, failed := map[device]bool{}, map[device]error{}
	for _, m := range mounts {
		of := device{m.Major, m.Minor}
		if m.FSType != shareType || held[of] {
			continue
		}
		if err := openMount(proc, m); err != nil {
			failed[of] = fmt.Errorf("hold the mount at %s: %w", m.Mountpoint, err)
			continue
		}
		held[of] = true
	}
	var errs []error
	for of, err := range failed {
		if !held[of] {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ownMounts lists the mounts that the calling thread sees.
func ownMounts(proc int) ([]*mountinfo.Info, error) {
	f, err := openIn(proc, "thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, nil)
}

// openMount opens the root of a mount. Another one at the same path, which hides it,
// is an error.
func openMount(proc int, m *mountinfo.Info) error {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, m.Mountpoint, how)
	if err != nil {
		return err
	}
	id, err := mountOf(proc, fd)
	if err == nil && id != m.ID {
		err = fmt.Errorf("mount %d is there, want %d", id, m.ID)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}

// mountOf is the number of the mount that has a file. It asks the file system nothing
// (proc(5), /proc/PID/fdinfo).
func mountOf(proc, fd int) (int, error) {
	f, err := openIn(proc, "thread-self/fdinfo/"+strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

func openIn(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
