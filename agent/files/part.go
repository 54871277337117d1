package files

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

const (
	// maxPartials bounds the incomplete files: one for each volume that is
	// being copied.
	maxPartials = 64
	// partialAge is how long a file waits for its next part: several times the
	// host's bound on a call.
	partialAge = time.Minute
)

// partial is an incomplete file.
type partial struct {
	rel  string
	file *os.File // without a name
	size uint64
	// since is when the latest part arrived.
	since time.Time
}

// addPart writes a part of a file; with the last part the file gets its name. A
// part that does not fit discards the parts before it.
func (t *Tree) addPart(at place, rel string, c *api.FileChange) error {
	part := c.GetFile()
	p, err := t.partial(at, rel, part)
	if err != nil {
		t.drop(rel)
		return err
	}
	if _, err := p.file.Write(part.GetContent()); err != nil {
		t.drop(rel)
		return fmt.Errorf("write: %w", err)
	}
	p.size += uint64(len(part.GetContent()))
	p.since = time.Now()
	if !part.GetLast() {
		return nil
	}
	defer t.drop(rel)
	return at.finish(p.file, c)
}

// partial finds the part's file, or makes it for the first part.
func (t *Tree) partial(at place, rel string, part *api.FilePart) (*partial, error) {
	if part.GetOffset() == 0 {
		t.drop(rel)
		return t.begin(at, rel)
	}
	i := slices.IndexFunc(t.partials, func(p *partial) bool { return p.rel == rel })
	if i < 0 {
		return nil, fmt.Errorf("the part begins at %d, want 0: no earlier part has arrived (%w)", part.GetOffset(), errdefs.ErrFailedPrecondition)
	}
	if p := t.partials[i]; p.size != part.GetOffset() {
		return nil, fmt.Errorf("the part begins at %d, want %d: %w", part.GetOffset(), p.size, errdefs.ErrInvalidArgument)
	}
	return t.partials[i], nil
}

func (t *Tree) begin(at place, rel string) (*partial, error) {
	fd, err := unix.Openat(at.dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make file: %w", err)
	}
	if len(t.partials) >= maxPartials {
		t.dropAt(0)
	}
	p := &partial{rel: rel, file: os.NewFile(uintptr(fd), rel), since: time.Now()}
	t.partials = append(t.partials, p)
	return p, nil
}

// finish gives a whole file owner, mode, time and its name.
func (p place) finish(file *os.File, c *api.FileChange) error {
	if c.GetFile().GetInPlace() {
		if old, err := p.openRegular(os.O_WRONLY); err == nil {
			defer old.Close()
			return overwrite(old, file, c)
		}
	}
	fd := int(file.Fd())
	if err := describe(fd, c); err != nil {
		return err
	}
	return p.replace(func(name string) error {
		return unix.Linkat(unix.AT_FDCWD, descriptorPath(fd), p.dir, name, unix.AT_SYMLINK_FOLLOW)
	})
}

// openRegular opens an existing regular file. It checks the type before
// opening, because opening another type may block or have side effects.
func (p place) openRegular(flags int) (*os.File, error) {
	fd, err := unix.Openat(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, unix.EEXIST
	}
	return os.OpenFile(descriptorPath(fd), flags, 0)
}

// overwrite replaces old's content by file's. It truncates last, so that
// concurrent readers do not see an empty file.
func overwrite(old, file *os.File, c *api.FileChange) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the parts received: %w", err)
	}
	size, err := io.Copy(old, file)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := old.Truncate(size); err != nil {
		return fmt.Errorf("cut off: %w", err)
	}
	return describe(int(old.Fd()), c)
}

// describe sets an open file's owner, mode and time.
func describe(fd int, c *api.FileChange) error {
	if err := setOwner(fd, c); err != nil {
		return err
	}
	return setTime(fd, c.GetFile().GetMtime())
}

// setTime sets the file's modification time; nil leaves it.
func setTime(fd int, mtime *timestamppb.Timestamp) error {
	if mtime == nil {
		return nil
	}
	if err := mtime.CheckValid(); err != nil {
		return fmt.Errorf("time: %w (%w)", err, errdefs.ErrInvalidArgument)
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: mtime.GetSeconds(), Nsec: int64(mtime.GetNanos())}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, descriptorPath(fd), times, 0); err != nil {
		return fmt.Errorf("set time: %w", err)
	}
	return nil
}

// drop drops the incomplete file of a path, and those below it.
func (t *Tree) drop(rel string) {
	for i, p := range slices.Backward(t.partials) {
		if p.rel == rel || strings.HasPrefix(p.rel, rel+"/") {
			t.dropAt(i)
		}
	}
}

// dropOld drops incomplete files that have not been continued for long.
func (t *Tree) dropOld() {
	for i, p := range slices.Backward(t.partials) {
		if time.Since(p.since) > partialAge {
			t.dropAt(i)
		}
	}
}

func (t *Tree) dropAt(i int) {
	_ = t.partials[i].file.Close() // The file is deleted by this: write errors do not matter.
	t.partials = slices.Delete(t.partials, i, i+1)
}
