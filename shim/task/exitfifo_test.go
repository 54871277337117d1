package task

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// openExitFIFO makes the FIFO of one run, replacing that of the last run.
func openExitFIFO(t *testing.T, dir string) *os.File {
	t.Helper()
	path := filepath.Join(dir, "c1", "exit_fifo")
	if err := errors.Join(os.RemoveAll(filepath.Dir(path)), os.MkdirAll(filepath.Dir(path), 0o700), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A container is run again before its first exit was reported: each run's engine
// gets its own status, and an engine that waited gets none.
func TestExitsOfRunsStayApart(t *testing.T) {
	dir := t.TempDir()
	e := newExitFIFOs(dir)
	failed := func(err error) { t.Error(err) }
	exit := func(status uint32) virtcontainers.Exit {
		return virtcontainers.Exit{ContainerID: "c1", Status: status, At: time.Now()}
	}
	first := openExitFIFO(t, dir)
	e.exited(exit(1), failed)
	second, waited := openExitFIFO(t, dir), exit(2)
	e.noteWait(waited)
	e.exited(waited, failed)
	third := openExitFIFO(t, dir)
	e.exited(exit(3), failed)
	for _, run := range []struct {
		fifo *os.File
		want uint32
	}{{first, 1}, {third, 3}} {
		if err := run.fifo.SetReadDeadline(time.Now().Add(20 * waitGrace)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 8)
		n, err := run.fifo.Read(got)
		if err != nil || n != 4 || binary.NativeEndian.Uint32(got) != run.want {
			t.Errorf("the FIFO gave %v, %v; want %d", got[:n], err, run.want)
		}
	}
	// The third run's exit was reported after the second's would have been.
	if err := second.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Read(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an engine that waited was told %d bytes, %v", n, err)
	}
}
