package monitor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"
)

// openFull opens a file whose disk is full.
func openFull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Output that a file does not take is dropped, and counted: the process is not ended by
// SIGPIPE.
func TestRelayToAFullDisk(t *testing.T) {
	full := openFull(t)
	r, name := newRelay(t, full)
	w := openWriter(t, name)
	const size = 2 << 20 // more than the pipe holds
	if n, err := w.Write(make([]byte, size)); n != size || err != nil {
		t.Errorf("the process has written %d bytes, %v", n, err)
	}
	_ = w.Close()
	r.await(t)
	bytes, why := r.loss.get()
	if bytes != size || !errors.Is(why, unix.ENOSPC) {
		t.Errorf("%d bytes were lost: %v", bytes, why)
	}
	if moved := r.moved.Load(); moved != size {
		t.Errorf("%d bytes have moved: a relay that drops output looks stalled", moved)
	}
}

// A file that has had no room takes what is written later.
func TestRelayAfterAFullDisk(t *testing.T) {
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	full := openFull(t)
	dst, err := unix.FcntlInt(full.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dst)
	r := &relay{dst: dst, output: true}
	if !r.write([]byte("lost")) {
		t.Fatal("a full disk ends the relay")
	}
	if err := unix.Dup3(int(file.Fd()), dst, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if !r.write([]byte("taken")) {
		t.Error("the relay has ended")
	}
	if got, err := os.ReadFile(file.Name()); err != nil || string(got) != "taken" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if bytes, why := r.loss.get(); bytes != 4 || !errors.Is(why, unix.ENOSPC) {
		t.Errorf("%d bytes were lost: %v", bytes, why)
	}
}

// A reader that is gone, of a pipe or of a terminal, ends the relay, and is no loss. So
// does an input's FIFO, whatever the error.
func TestRelayWithoutAReader(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	defer in.Close()
	pty, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	_ = pty.Close() // hangs the terminal up
	for name, r := range map[string]*relay{
		"pipe":     {dst: int(in.Fd()), output: true},
		"terminal": {dst: int(slave.Fd()), output: true},
		"input":    {dst: int(openFull(t).Fd())},
	} {
		if r.write([]byte("x")) {
			t.Errorf("%s: the relay goes on", name)
		}
		if bytes, why := r.loss.get(); bytes != 0 || why != nil {
			t.Errorf("%s: %d bytes were lost: %v", name, bytes, why)
		}
	}
}

// What was lost names the stream, and the reason once.
func TestLost(t *testing.T) {
	s := &session{relays: []*relay{{stream: 0}, {stream: 1, output: true}, {stream: 2, output: true}}}
	if err := s.lost(); err != nil {
		t.Errorf("nothing was lost: %v", err)
	}
	s.relays[1].loss.add(5, unix.ENOSPC)
	s.relays[1].loss.add(2, unix.EIO)
	s.relays[2].loss.add(1, unix.EFBIG)
	const want = "standard output: no space left on device: 7 bytes were lost\nstandard error: file too large: 1 byte was lost"
	if err := s.lost(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
