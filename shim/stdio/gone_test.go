package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// The engine is gone and its FIFOs cannot be opened again: the process must not
// wait for a reader indefinitely.
func TestOutputIsDroppedWhenItsOnlyReaderIsGone(t *testing.T) {
	e := newEngine(t)
	e.paths.ReadersStay = true
	stdout, stderr := e.open(e.paths.Stdout, os.O_RDONLY), e.open(e.paths.Stderr, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	if _, err := g.stdout.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if _, err := io.ReadFull(stdout, got); err != nil || string(got) != "before" {
		t.Fatalf("stdout: %q, %v", got, err)
	}
	stdout.Close()
	stderr.Close()
	size := 1 << 20 // more than the FIFO and the sockets hold
	if err := g.stdout.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.stdout.Write(bytes.Repeat([]byte("x"), size)); err != nil {
		t.Fatalf("the process is held up: %v", err)
	}
	g.stdout.Close()
	i.Drain(t.Context(), uint64(size)+6, 0)
	i.out.mu.Lock()
	defer i.out.mu.Unlock()
	if passed := i.out.passed; passed != uint64(size)+6 {
		t.Errorf("%d bytes were taken, want %d", passed, size+6)
	}
}

// If the reader was the end of a pipeline, the process gets SIGPIPE; the other
// stream continues.
func TestOutputBreaksWhenItsOnlyReaderIsGone(t *testing.T) {
	e := newEngine(t)
	e.paths.ReadersStay, e.paths.PipesBreak = true, true
	stdout, stderr := e.open(e.paths.Stdout, os.O_RDONLY), e.open(e.paths.Stderr, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	stdout.Close()
	if err := g.stdout.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.stdout.Write(bytes.Repeat([]byte("x"), 4<<20)); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the guest's write: %v, want EPIPE", err)
	}
	i.Drain(t.Context(), 1<<40, 0) // output without a reader is not waited for
	if _, err := g.stderr.Write([]byte("after")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	_ = stderr.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(stderr, got); err != nil || string(got) != "after" {
		t.Errorf("stderr: %q, %v", got, err)
	}
}

// A terminal's output has no broken pipe.
func TestTerminalDoesNotBreak(t *testing.T) {
	i := newIO(t, Paths{Stdout: "/out", Terminal: true, ReadersStay: true, PipesBreak: true})
	if i.out.breaks {
		t.Error("the process would lose its terminal")
	}
}
