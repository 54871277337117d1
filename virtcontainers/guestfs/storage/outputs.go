package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// outputsName is the share's directory with files by which large blocks of processes'
// outputs come (api.FrameSlot). No container can have that id.
const outputsName = "outputs"

// outputsOptions bound the host's memory for them, whatever the guest writes. There is room
// for eight busy outputs; one that finds none comes over its connection.
const outputsOptions = "mode=0700,size=16m,nr_inodes=1024"

// mountOutputs gives the directory its own file system; it runs on the space's thread.
func mountOutputs(root string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", path.Join(root, outputsName), "tmpfs", flags, outputsOptions); err != nil {
		return fmt.Errorf("mount the file system for outputs: %w", err)
	}
	return nil
}

// outputPolicy is for a guest that writes each block once. Without Direct its kernel asks
// for file capabilities before each write, to remove them. The share's own root may be
// without it: nothing maps these files.
func outputPolicy(base passthrough.Policy) passthrough.Policy {
	base.Direct, base.Passing = true, true
	return base
}

// outputs are the share's files for outputs.
type outputs struct {
	dir  *os.File // opened with O_PATH
	last atomic.Uint64
}

func (o *outputs) close() error {
	if o.dir == nil { // the share was not opened
		return nil
	}
	return o.dir.Close()
}

func openOutputs(ctx context.Context, sp *space, root string) (*os.File, error) {
	return ask(ctx, sp, func() (*os.File, error) {
		fd, err := unix.Open(path.Join(root, outputsName), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, os.NewSyscallError("open", err)
		}
		return os.NewFile(uintptr(fd), outputsName), nil
	}, (*os.File).Close)
}

// Output is a file by which large blocks of a process's output come. What is in it the
// guest has written, and may change at any time.
type Output struct {
	file, dir *os.File
	name      string
	close     func() error
}

// NewOutput makes an empty file for one connection of an output. The file may be read
// after the share is closed.
func (s *Share) NewOutput() (*Output, error) {
	if err := s.checkOpen(); err != nil {
		return nil, fmt.Errorf("make a file for output: %w", err)
	}
	o := &Output{dir: s.outputs.dir, name: strconv.FormatUint(s.outputs.last.Add(1), 10)}
	o.close = sync.OnceValue(o.remove)
	err := o.inDir(func(dir int) error {
		fd, err := unix.Openat(dir, o.name, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return os.NewSyscallError("openat", err)
		}
		o.file = os.NewFile(uintptr(fd), o.name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make a file for output: %w", err)
	}
	return o, nil
}

// GuestPath is where the guest has the file.
func (o *Output) GuestPath() string { return path.Join(api.GuestSharedDir, outputsName, o.name) }

// ReadAt implements io.ReaderAt.
func (o *Output) ReadAt(p []byte, off int64) (int, error) { return o.file.ReadAt(p, off) }

// Close removes the file. It may be called again.
func (o *Output) Close() error { return o.close() }

func (o *Output) remove() error {
	err := o.inDir(func(dir int) error { return os.NewSyscallError("unlinkat", unix.Unlinkat(dir, o.name, 0)) })
	if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.ENOENT) {
		err = nil // The share has ended, or the guest has removed it.
	}
	return errors.Join(err, o.file.Close())
}

// inDir calls f with the directory. Its error is os.ErrClosed if the share is closed.
func (o *Output) inDir(f func(dir int) error) (err error) {
	raw, closed := o.dir.SyscallConn()
	if closed == nil {
		closed = raw.Control(func(fd uintptr) { err = f(int(fd)) })
	}
	if closed != nil {
		return os.ErrClosed
	}
	return err
}
