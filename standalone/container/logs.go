package container

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// followTimeout is how long a following reader waits for changes before it checks
// whether the container's process was killed.
const followTimeout = 2 * time.Second

// Logs writes a container's output: its stdout to out, its stderr to err. With
// follow it continues until the container has ended.
func (m *Manager) Logs(ctx context.Context, name string, follow bool, out, err io.Writer) error {
	if _, err := m.Load(name); err != nil {
		return err
	}
	r := &logReader{dir: m.Store.ContainerDir(name), out: out, err: err}
	defer r.close()
	if !follow {
		return r.readOnce()
	}
	news, watchErr := watch(r.dir)
	if watchErr != nil {
		return watchErr
	}
	defer news.Close()
	for {
		record, err := m.Load(name) // before the last of the output is read
		ended := errdefs.IsNotFound(err) || err == nil && (record.Exited != nil || !record.Engine.Alive())
		if err := r.readAll(); err != nil || ended {
			return err
		}
		if err := awaitNews(ctx, news); err != nil {
			return err
		}
	}
}

// logReader reads a log, continuing where it stopped before.
type logReader struct {
	dir      string
	out, err io.Writer
	began    bool
	files    []*os.File // the first is being read
	buf      *bufio.Reader
	part     []byte // of a line that is still being written
}

func (r *logReader) close() {
	for len(r.files) > 0 {
		r.drop()
	}
}

// readOnce writes everything that was there when it was called. A reader whose output
// is held, as by a pager, keeps the files open when they are replaced.
func (r *logReader) readOnce() error {
	if err := r.begin(); err != nil {
		return err
	}
	return r.readBut(0)
}

// readAll is readOnce, and continues with the files that have come meanwhile.
func (r *logReader) readAll() error {
	if !r.began {
		r.began = true
		if err := r.begin(); err != nil {
			return err
		}
	}
	for {
		if err := r.readBut(1); err != nil {
			return err
		}
		if len(r.files) > 0 {
			newest := r.isNewest() // before it is read: nothing more is added to a file that was replaced
			if err := r.readFile(); err != nil || newest {
				return err
			}
			r.drop()
		}
		if err := r.open(logFile); err != nil || len(r.files) == 0 {
			return err
		}
	}
}

// readBut reads files to their ends and closes them, until rest are left.
func (r *logReader) readBut(rest int) error {
	for len(r.files) > rest {
		if err := r.readFile(); err != nil {
			return err
		}
		r.drop()
	}
	return nil
}

// begin opens both files of a log. The log may be rotated meanwhile. The newer file is
// opened first; the older one directly precedes it only if both are still current.
func (r *logReader) begin() error {
	for {
		newer, err1 := r.openFile(logFile)
		older, err2 := r.openFile(oldLogFile)
		r.add(older)
		r.add(newer)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if r.isNewestPair(older, newer) {
			return nil
		}
		r.close()
	}
}

// isNewestPair reports whether a log's files, each of which may be nil, are those that it
// has now, or had when the container was removed.
func (r *logReader) isNewestPair(older, newer *os.File) bool {
	named := r.stat(logFile)
	if newer != nil && named != nil {
		return isSame(newer, named)
	}
	before := r.stat(oldLogFile)
	if newer != nil {
		return before == nil
	}
	return named == nil && (before == nil || isSame(older, before))
}

// open continues with a file that has come meanwhile.
func (r *logReader) open(name string) error {
	f, err := r.openFile(name)
	r.add(f)
	return err
}

// openFile opens a file of the log. It returns nil if there is none.
func (r *logReader) openFile(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(r.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read container's log: %w", err)
	}
	return f, nil
}

// add has a file read after the others, unless it is nil.
func (r *logReader) add(f *os.File) {
	if f == nil {
		return
	}
	r.files = append(r.files, f)
	if len(r.files) == 1 {
		r.buf, r.part = bufio.NewReader(f), nil
	}
}

// drop closes the file that was read.
func (r *logReader) drop() {
	r.files[0].Close()
	r.files = r.files[1:]
	if len(r.files) > 0 {
		r.buf, r.part = bufio.NewReader(r.files[0]), nil
	}
}

// isNewest reports whether the file that is read is the one being written, or was
// when the container was removed.
func (r *logReader) isNewest() bool {
	named := r.stat(logFile)
	return named == nil || isSame(r.files[0], named)
}

// stat describes a file of the log. It returns nil if there is none.
func (r *logReader) stat(name string) os.FileInfo {
	info, err := os.Stat(filepath.Join(r.dir, name))
	if err != nil {
		return nil
	}
	return info
}

// isSame reports whether a file is the one that was described.
func isSame(f *os.File, described os.FileInfo) bool {
	if f == nil {
		return false
	}
	mine, err := f.Stat()
	return err != nil || os.SameFile(mine, described)
}

// readFile writes what has been added to the file.
func (r *logReader) readFile() error {
	for {
		line, err := r.buf.ReadBytes('\n')
		r.part = append(r.part, line...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read container's log: %w", err)
		}
		if err := r.show(r.part); err != nil {
			return err
		}
		r.part = r.part[:0]
	}
}

// show writes the output in one line of the log.
func (r *logReader) show(line []byte) error {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) != 4 {
		return fmt.Errorf("read container's log: a line of %d fields, want 4: %w", len(fields), errdefs.ErrFailedPrecondition)
	}
	to, data := r.out, fields[3]
	if string(fields[1]) == "stderr" {
		to = r.err
	}
	if string(fields[2]) == "P" {
		data = bytes.TrimSuffix(data, []byte("\n"))
	}
	_, err := to.Write(data)
	return err
}

// watch returns an inotify descriptor for a container's directory.
func watch(dir string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	news := os.NewFile(uintptr(fd), "inotify")
	const changes = unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF
	if _, err := unix.InotifyAddWatch(fd, dir, changes); err != nil {
		return nil, errors.Join(fmt.Errorf("follow log: %w", err), news.Close())
	}
	return news, nil
}

// awaitNews waits for a change, with a timeout.
func awaitNews(ctx context.Context, news *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = news.SetReadDeadline(time.Now()) })
	defer stop()
	if err := news.SetReadDeadline(time.Now().Add(followTimeout)); err != nil {
		return fmt.Errorf("follow log: %w", err)
	}
	_, err := news.Read(make([]byte, 4096))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("follow log: %w", err)
	}
	return nil
}
