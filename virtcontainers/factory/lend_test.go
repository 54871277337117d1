package factory

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// lendable makes a template's directory and its memory.
func lendable(t *testing.T) (Store, Key, *Template) {
	t.Helper()
	s, key := Store{Dir: t.TempDir()}, Key(strings.Repeat("ab", keyBytes))
	dir := filepath.Join(s.Dir, string(key))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, MemoryFile)
	if err := os.WriteFile(path, bytes.Repeat([]byte("katabox!"), 1<<17), 0o400); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	sum, err := memfile.Sum(f)
	if err != nil {
		t.Fatal(err)
	}
	return s, key, &Template{Memory: f, MemorySum: sum}
}

func lend(t *testing.T, s Store, key Key, tpl *Template) *Lent {
	t.Helper()
	l, err := s.Lend(key, tpl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.File.Close() })
	if err := l.Filled(); err != nil {
		t.Fatal(err)
	}
	return l
}

func inode(t *testing.T, f *os.File) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// All that have a template's memory at a time have the same, also when the process that made it is done.
func TestLend(t *testing.T) {
	s, key, tpl := lendable(t)
	first, second := lend(t, s, key, tpl), lend(t, s, key, tpl)
	if inode(t, first.File) != inode(t, second.File) {
		t.Error("the second got a copy")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third := lend(t, s, key, tpl)
	if inode(t, third.File) != inode(t, second.File) {
		t.Error("without its maker it is not found")
	}
	if _, err := third.File.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(third.File)
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("katabox!"), 1<<17)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := s.Remove(key); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Lent{second, third} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What is lent cannot be changed, although it can be opened for writing.
func TestLentIsSealed(t *testing.T) {
	s, key, tpl := lendable(t)
	l := lend(t, s, key, tpl)
	f, err := os.OpenFile("/proc/self/fd/"+filepath.Base(l.note)[strings.Index(filepath.Base(l.note), "-")+1:], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("it can be written")
	}
	if f.Truncate(0) == nil || f.Truncate(1<<30) == nil {
		t.Error("its length can be changed")
	}
	if unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096) == nil {
		t.Error("it can get holes")
	}
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("it can be mapped shared, for writing")
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	mem[0] = 'x'
	_ = unix.Munmap(mem)
	var b [1]byte
	if _, err := l.File.ReadAt(b[:], 0); err != nil || b[0] != 'k' {
		t.Errorf("it now has %q, %v", b, err)
	}
}

// Notes of processes that died, and wrong ones, lead to another copy, and are
// removed. So is memory that is not the template's.
func TestWrongNotes(t *testing.T) {
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(n *note){
		"ended":         func(n *note) { n.Process.PID = gone.Process.Pid },
		"another start": func(n *note) { n.Process.Start++ },
		"another file":  func(n *note) { n.Ino++ },
		"closed":        func(n *note) { n.FD = 1 << 20 },
		"not sealed":    func(n *note) { n.FD = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s, key, tpl := lendable(t)
			l := lend(t, s, key, tpl)
			var st unix.Stat_t
			if err := unix.Fstat(int(l.File.Fd()), &st); err != nil {
				t.Fatal(err)
			}
			n := note{Process: self, FD: int(l.File.Fd()), Dev: st.Dev, Ino: st.Ino}
			spoil(&n)
			text, err := json.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			wrong := filepath.Join(filepath.Dir(l.note), "0-0")
			if err := os.WriteFile(wrong, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(l.note); err != nil {
				t.Fatal(err)
			}
			again := lend(t, s, key, tpl)
			if inode(t, again.File) == st.Ino {
				t.Error("the note was followed")
			}
			if exists(wrong) {
				t.Error("the note is still there")
			}
		})
	}
}

// A note whose process and file are others' now delays nothing: the open of a FIFO
// waits for its writer.
func TestNoteOfAFIFO(t *testing.T) {
	s, key, tpl := lendable(t)
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	text, err := json.Marshal(note{Process: self, FD: int(end.Fd()), Dev: 1, Ino: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.Dir, string(key), lendersDir)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "0-0"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	lent := make(chan error, 1)
	go func() {
		l, err := s.Lend(key, tpl)
		if err == nil {
			err = l.Close()
		}
		lent <- err
	}()
	select {
	case err := <-lent:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits for the FIFO's writer")
	}
}

// A template may be removed while its memory is copied: the machine has it all the same.
func TestRemoveWhileFilled(t *testing.T) {
	s, key, tpl := lendable(t)
	dir := filepath.Join(s.Dir, string(key), lendersDir)
	file, err := blankFor(key, tpl)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &Lent{File: file, note: filepath.Join(dir, "1-1"), filled: make(chan struct{})}
	l.fill(func() error {
		return errors.Join(memfile.Fill(file, tpl.Memory, tpl.MemorySum), s.Remove(key))
	}, lock)
	if err := errors.Join(l.Filled(), l.Close()); err != nil {
		t.Error(err)
	}
}

func TestLendDamaged(t *testing.T) {
	s, key, tpl := lendable(t)
	tpl.MemorySum++
	l, err := s.Lend(key, tpl)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Filled(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damaged memory is lent: %v", err)
	}
	if exists(l.note) {
		t.Error("others can find the damaged memory")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lend(key, tpl); err == nil {
		t.Error("a removed template is lent")
	}
}

// Another process that wants the memory while it is filled waits, and gets the
// same; Close waits, too.
func TestLendBeforeFilled(t *testing.T) {
	s, key, tpl := lendable(t)
	first, err := s.Lend(key, tpl)
	if err != nil {
		t.Fatal(err)
	}
	second := lend(t, s, key, tpl)
	if inode(t, first.File) != inode(t, second.File) {
		t.Error("the second got a copy")
	}
	if !memfile.Sealed(first.File) {
		t.Error("the memory was found before it was sealed")
	}
	other, key2, tpl2 := lendable(t)
	third, err := other.Lend(key2, tpl2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Close(), second.Close(), third.Close()); err != nil {
		t.Error(err)
	}
	if exists(third.note) {
		t.Error("a closed one can still be found")
	}
}
