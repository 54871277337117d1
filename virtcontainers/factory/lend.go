package factory

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/internal/regular"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// lendersDir is the directory, in a template's, of the notes of those who have
// its memory sealed.
const lendersDir = "lenders"

// lendWait is how long Lend waits for others: for one that copies the memory,
// which takes a second at most, and for those that find it. lendPause is the
// interval of its attempts.
const (
	lendWait  = 5 * time.Second
	lendPause = 2 * time.Millisecond
)

// Lent is a template's memory, sealed (memfile.Fill), for machines that map it
// privately. As long as any process has it, Lend returns the same memory: this
// process lends it to others.
type Lent struct {
	// File has the memory once Filled has returned.
	File *os.File
	// Copied is set if no other process had the memory: this one has made it.
	Copied bool
	// Sum is the template's (Template.MemorySum).
	Sum  uint32
	note string
	// filled is closed after err is set.
	filled chan struct{}
	err    error
}

// note says where the sealed memory is open.
type note struct {
	Process  persist.Process
	FD       int
	Dev, Ino uint64
	// Sum is the template's: another one of the same key has other memory.
	Sum uint32
	// Keeper is set for a process that has it for others alone (Keep).
	Keeper bool `json:",omitempty"`
}

// notePath is where this process notes that it has the memory open as file.
func notePath(dir string, file *os.File) string {
	return filepath.Join(dir, fmt.Sprintf("%d-%d", os.Getpid(), file.Fd()))
}

// Lend returns the template's sealed memory: that of another process, or a new
// copy, which is made in the background. The template stays the caller's, and must
// be open until Filled or Close has returned.
func (s Store) Lend(key Key, t *Template) (*Lent, error) {
	l, err := s.lend(filepath.Join(s.Dir, string(key), lendersDir), key, t)
	if err != nil {
		return nil, fmt.Errorf("lend memory of template %s: %w", key, err)
	}
	return l, nil
}

func (s Store) lend(dir string, key Key, t *Template) (*Lent, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	file := borrow(dir, t)
	fill, copied := func() error { return nil }, file == nil
	if copied {
		if file, err = blankFor(key, t); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		fill = func() error { return memfile.Fill(file, t.Memory, t.MemorySum) }
	}
	l := &Lent{File: file, Copied: copied, Sum: t.MemorySum, note: notePath(dir, file), filled: make(chan struct{})}
	go l.fill(fill, lock)
	return l, nil
}

// blankFor returns a file for a copy of the template's memory.
func blankFor(key Key, t *Template) (*os.File, error) {
	info, err := t.Memory.Stat()
	if err != nil {
		return nil, err
	}
	return memfile.Blank("katabox-template-"+string(key), info.Size())
}

// fill fills the file and tells others of it. They wait for the lock. If they cannot be
// told, as when the template is being removed, they make another copy.
func (l *Lent) fill(fill func() error, lock *os.File) {
	defer close(l.filled)
	defer lock.Close()
	if l.err = fill(); l.err == nil {
		_ = sign(l.note, l.File, note{Sum: l.Sum})
	}
}

// Filled waits until the file has the template's memory and is sealed. It fails
// if the memory is damaged. Copying it takes a second at most.
func (l *Lent) Filled() error {
	<-l.filled
	if l.err != nil {
		return fmt.Errorf("lend memory of template: %w", l.err)
	}
	return nil
}

// Dup returns the memory as another file, which is the caller's. It fails once Close has
// closed File.
func (l *Lent) Dup() (*os.File, error) {
	raw, err := l.File.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(old uintptr) { fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, os.NewSyscallError("fcntl", dupErr)
	}
	return os.NewFile(uintptr(fd), l.File.Name()), nil
}

// lockDir makes the caller the only one that reads and adds notes.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lendWait); ; time.Sleep(lendPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(os.NewSyscallError("flock", err), f.Close())
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("others took more than %v: %w", lendWait, errdefs.ErrUnavailable), f.Close())
		}
	}
}

// borrow opens the sealed memory of another process, nil if none has it. Notes
// that are wrong are removed.
func borrow(dir string, t *Template) *os.File {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if f, err := openNoted(path, t); err == nil {
			return f
		}
		_ = os.Remove(path)
	}
	return nil
}

// openNoted opens what a note names, if it is still there. Only root can write
// notes; the checks are for processes that died, and whose id is another's.
func openNoted(path string, t *Template) (*os.File, error) {
	n, err := readNote(path)
	if err != nil {
		return nil, err
	}
	f, err := n.open(t)
	if err != nil {
		return nil, fmt.Errorf("open memory of process %d: %w", n.Process.PID, err)
	}
	return f, nil
}

func readNote(path string) (note, error) {
	file, err := regular.Open(path)
	if err != nil {
		return note{}, err
	}
	defer file.Close()
	text, err := readUpTo(file, maxInfo)
	var n note
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	return n, err
}

var errOtherFile = errors.New("it is another file")

// find opens what the note names as a mere place (O_PATH), if it is still that.
func (n note) find() (*os.File, error) {
	place, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", n.Process.PID, n.FD), unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return nil, errors.Join(os.NewSyscallError("fstat", err), place.Close())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Dev != n.Dev || st.Ino != n.Ino || !n.Process.Alive() {
		return nil, errors.Join(errOtherFile, place.Close())
	}
	return place, nil
}

// open opens what the note names, if that is memory of a template. It opens nothing else
// for reading: the open of a FIFO could wait for its writer, that of a device do something.
func (n note) open(t *Template) (*os.File, error) {
	place, err := n.find()
	if err != nil {
		return nil, err
	}
	defer place.Close()
	got, err := place.Stat()
	want, wantErr := t.Memory.Stat()
	if err := errors.Join(err, wantErr); err != nil {
		return nil, err
	}
	if n.Sum != t.MemorySum || got.Size() != want.Size() {
		return nil, errOtherFile
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", place.Fd()), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if !memfile.Sealed(f) {
		return nil, errors.Join(errOtherFile, f.Close())
	}
	return f, nil
}

// sign completes a note, that this process has the memory open as file, and writes it. Who
// reads it without the lock sees all of it or nothing. On an error nothing is left.
func sign(path string, file *os.File, n note) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	var err error
	if n.Process, err = persist.Identify(os.Getpid()); err != nil {
		return err
	}
	n.FD, n.Dev, n.Ino = int(file.Fd()), st.Dev, st.Ino
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	unfinished := path + ".new"
	if err = os.WriteFile(unfinished, text, 0o600); err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		_ = os.Remove(unfinished) // it may be there in part
	}
	return err
}

// Close ends lending, once the file is filled. Machines that have the memory keep
// it.
func (l *Lent) Close() error {
	<-l.filled
	err := os.Remove(l.note)
	if errors.Is(err, os.ErrNotExist) {
		err = nil // the template was removed, or the file was not filled
	}
	return errors.Join(err, l.File.Close())
}
