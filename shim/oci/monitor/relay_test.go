package monitor

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

const patience = 20 * time.Second

// newRelay starts the relay of an output from a FIFO to dst, which stays the
// caller's.
func newRelay(t *testing.T, dst *os.File) (*relay, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(src, false); err != nil {
		t.Fatal(err)
	}
	r := &relay{src: src, dst: int(dst.Fd()), output: true, done: make(chan struct{}), finish: func() { _ = unix.Close(src) }}
	go r.run()
	return r, name
}

func openWriter(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (r *relay) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		t.Fatal("the relay does not end")
	}
}

// If the shim opens its end late, the relay does not see an end of file before.
func TestRelayWaitsForTheWriter(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r, name := newRelay(t, in)
	select {
	case <-r.done:
		t.Fatal("the relay ended before a writer came")
	case <-time.After(100 * time.Millisecond):
	}
	w := openWriter(t, name)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // more than pipes hold
	go func() {
		_, _ = w.Write(want)
		_ = w.Close()
		<-r.done
		_ = in.Close()
	}()
	got, err := io.ReadAll(out)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d came, %v", len(got), len(want), err)
	}
	r.await(t)
}

// Input that ended before the shim opened its end arrives all the same, and so
// does its end.
func TestInputBeforeItsReader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	src, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := w.WriteString("input\n"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	s := streams{host: [3]int{int(src.Fd()), -1, -1}, guest: [3]int{fifo, -1, -1}}
	relays := s.relay()
	for client.Pending(int(src.Fd())) > 0 { // all but the end has been read
		time.Sleep(time.Millisecond)
	}
	select {
	case <-relays[0].done:
		t.Error("the end is passed on before there is a reader")
	case <-time.After(100 * time.Millisecond):
	}
	shims, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer shims.Close()
	if got, err := io.ReadAll(shims); err != nil || string(got) != "input\n" {
		t.Errorf("%q came, %v", got, err)
	}
	relays[0].await(t)
}

// A destination that cannot be spliced to is written to.
func TestRelayToFile(t *testing.T) {
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, name := newRelay(t, file)
	w := openWriter(t, name)
	if _, err := w.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	r.await(t)
	if got, err := os.ReadFile(file.Name()); err != nil || string(got) != "hello" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// "run | head": when the reader is gone, the FIFO's writer is told.
func TestRelayEndsWithItsReader(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, name := newRelay(t, in)
	w := openWriter(t, name)
	defer w.Close()
	_ = out.Close()
	for deadline := time.Now().Add(patience); ; {
		if _, err := w.Write([]byte("x")); err != nil {
			break // EPIPE
		}
		if time.Now().After(deadline) {
			t.Fatal("writing goes on without a reader")
		}
	}
	r.await(t)
}

// The output of a process that has ended is complete when it was quiet for a
// while, even if another process holds the stream; bytes that its reader has not
// read yet are waited for.
func TestAwaitQuiet(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer in.Close() // not before: the relay has only its number
	r, name := newRelay(t, in)
	w := openWriter(t, name)
	defer w.Close()
	if _, err := unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("x"), 32<<10)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	quiet := make(chan struct{})
	go func() {
		r.awaitQuiet(t.Context(), 50*time.Millisecond)
		close(quiet)
	}()
	select {
	case <-quiet:
		t.Fatal("unread output was given up")
	case <-time.After(500 * time.Millisecond):
	}
	if _, err := io.ReadFull(out, make([]byte, len(want))); err != nil {
		t.Fatal(err)
	}
	select {
	case <-quiet:
	case <-time.After(patience):
		t.Fatal("a stream that another process holds is waited for")
	}
}

// A terminal without input does not keep the shim from opening the FIFO of its
// input.
func TestSilentTerminal(t *testing.T) {
	pty, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	defer pty.Close()
	slave, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	dst, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{src: slave, dst: dst, done: make(chan struct{}), finish: func() { _ = unix.Close(dst) }}
	go r.run()
	time.Sleep(100 * time.Millisecond) // it is reading by now
	opened := make(chan *os.File, 1)
	go func() {
		f, err := os.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Error(err)
		}
		opened <- f
	}()
	select {
	case f := <-opened:
		if _, err := pty.Write([]byte("typed\n")); err != nil {
			t.Error(err)
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(f, got); err != nil || string(got) != "typed\n" {
			t.Errorf("read %q, %v", got, err)
		}
		_ = f.Close()
	case <-time.After(patience):
		t.Error("the FIFO cannot be opened")
	}
	_ = pty.Close() // hangs the terminal up
	r.await(t)
	_ = unix.Close(slave)
}
