package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Stdio says which streams a user has attached.
type Stdio struct{ In, Out, Err bool }

// The ways in which isula attaches: "run -d" (and restarts), "run", "run -i"
// (and -it).
var (
	Detached   = Stdio{}
	Foreground = Stdio{Out: true, Err: true}
	Attached   = Stdio{In: true, Out: true, Err: true}
)

// paths are the FIFOs as named in a request; "" if nothing is attached.
type paths struct{ stdin, stdout, stderr string }

// fifos are the open FIFOs of one process.
type fifos struct {
	dir          string
	paths        paths
	in, out, err int // descriptors, -1 where nothing is attached
}

// openFIFOs makes and opens the FIFOs below dir. The outputs are opened for
// reading only, and stdin for reading and writing, so that neither these opens
// nor the shim's block.
func openFIFOs(dir string, want Stdio) (_ *fifos, err error) {
	now := time.Now()
	f := &fifos{in: -1, out: -1, err: -1}
	f.dir = filepath.Join(dir, fmt.Sprintf("%d_%d_%d", unix.Gettid(), now.Unix(), now.Nanosecond()))
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make FIFO directory: %w", err)
	}
	defer func() {
		if err != nil {
			f.close()
			f.unlink()
		}
	}()
	for _, end := range []struct {
		wanted bool
		name   string
		flags  int
		path   *string
		fd     *int
	}{
		{want.In, "in-fifo", unix.O_RDWR, &f.paths.stdin, &f.in},
		{want.Out, "out-fifo", unix.O_RDONLY, &f.paths.stdout, &f.out},
		{want.Err, "err-fifo", unix.O_RDONLY, &f.paths.stderr, &f.err},
	} {
		if !end.wanted {
			continue
		}
		*end.path = filepath.Join(f.dir, end.name)
		if *end.fd, err = makeFIFO(*end.path, end.flags); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func makeFIFO(path string, flags int) (int, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil && err != unix.EEXIST {
		return -1, fmt.Errorf("make FIFO %s: %w", path, err)
	}
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open FIFO %s: %w", path, err)
	}
	return fd, nil
}

// unlink removes the FIFOs' names, as iSulad does as soon as the start has
// returned: then they cannot be opened again.
func (f *fifos) unlink() { _ = os.RemoveAll(f.dir) }

func (f *fifos) close() {
	for _, fd := range []*int{&f.in, &f.out, &f.err} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}
