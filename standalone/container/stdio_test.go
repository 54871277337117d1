package container

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newStdio returns streams that are relayed to the writer, and the command's end of its
// output, which another process keeps open until the test ends.
func newStdio(t *testing.T, out io.Writer) (*Stdio, *os.File) {
	t.Helper()
	s := &Stdio{Out: out}
	if err := s.open(t.TempDir(), "stdio", true); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(filepath.Join(filepath.Dir(s.fifos.Out), "stdout"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	s.relay(func() {})
	return s, w
}

// slowReader accepts bytes only when it is asked to.
type slowReader struct {
	accept chan struct{}
	got    strings.Builder
}

func (r *slowReader) Write(p []byte) (int, error) {
	<-r.accept
	return r.got.Write(p)
}

// The output of a command that has ended is waited for as long as its reader takes.
func TestSlowReader(t *testing.T) {
	reader := &slowReader{accept: make(chan struct{})}
	s, w := newStdio(t, reader)
	if _, err := w.WriteString("the end"); err != nil {
		t.Fatal(err)
	}
	drained := make(chan error, 1)
	ended := false
	s.Ended = func() { ended = true }
	go func() { drained <- s.drain(t.Context()) }()
	select {
	case err := <-drained:
		t.Fatalf("unread output was given up: %v", err)
	case <-time.After(time.Second):
	}
	close(reader.accept)
	if err := <-drained; err != nil || !ended {
		t.Errorf("drain: %v, the end was reported: %t", err, ended)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if got := reader.got.String(); got != "the end" {
		t.Errorf("%q came", got)
	}
}

// A reader that does not read can be given up, which says that output is dropped.
func TestReaderIsGivenUp(t *testing.T) {
	reader := &slowReader{accept: make(chan struct{})}
	defer close(reader.accept)
	s, w := newStdio(t, reader)
	if _, err := w.WriteString("the end"); err != nil {
		t.Fatal(err)
	}
	for !s.inTransit() {
		time.Sleep(time.Millisecond)
	}
	ctx, giveUp := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	time.AfterFunc(100*time.Millisecond, func() { giveUp(why) })
	if err := s.drain(ctx); !errors.Is(err, why) || !strings.Contains(err.Error(), "dropped") {
		t.Errorf("drain: %v", err)
	}
	began := time.Now()
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("close took %v", took)
	}
}

// A process that the command leaves behind keeps the output open, which is not waited
// for.
func TestOutputThatDoesNotEnd(t *testing.T) {
	var out strings.Builder
	s, w := newStdio(t, &out)
	if _, err := w.WriteString("ok"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.drain(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if out.String() != "ok" {
		t.Errorf("%q came", out.String())
	}
}

// An input that is held is empty and does not end, until the command has.
func TestHeldInput(t *testing.T) {
	s := &Stdio{Hold: true}
	if err := s.open(t.TempDir(), "stdio", true); err != nil {
		t.Fatal(err)
	}
	if s.fifos.In == "" {
		t.Fatal("there is no input")
	}
	in, err := os.OpenFile(s.fifos.In, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s.relay(func() { t.Error("the input was ended") })
	if err := in.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := in.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if err := errors.Join(s.close(), in.SetReadDeadline(time.Time{})); err != nil {
		t.Fatal(err)
	}
	if n, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: read %d bytes, %v", n, err)
	}
}
