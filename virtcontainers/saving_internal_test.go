package virtcontainers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// A state without an end is given up, and its writer sees that.
func TestEndlessState(t *testing.T) {
	w := &saving{most: 1 << 20}
	if err := w.create(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	state, machine, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	written := make(chan error, 1)
	go func() { written <- errors.Join(w.write(state), state.Close()) }()
	block, sent := make([]byte, 64<<10), 0
	for err = nil; err == nil; sent += len(block) {
		if sent > 4<<20 {
			t.Fatal("all of it is taken")
		}
		_, err = machine.Write(block)
	}
	if err := <-written; !errdefs.IsResourceExhausted(err) {
		t.Errorf("%v", err)
	}
}

// The end of a checkpoint waits no longer than ctx for a disk that hangs. The file that
// has its name all the same is removed.
func TestNamedLate(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "katabox-saving") //nolint:usetesting // a busy disk takes seconds to sync a directory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "file")
	hanging, release := HangingClose(t)
	w := &saving{file: &lateFile{File: hanging, path: path, temporary: path + "-temporary"}}
	if err := os.WriteFile(w.file.temporary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.finish(ctx) }()
	for began := time.Now(); isOpen(hanging); time.Sleep(time.Millisecond) {
		if time.Since(began) > 5*time.Second {
			t.Fatal("it is not closed")
		}
	}
	impatient := errors.New("impatient")
	cancel(impatient)
	select {
	case err := <-ended:
		if !errors.Is(err, impatient) || w.complete {
			t.Errorf("complete %t, %v", w.complete, err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it waits for the disk")
	}
	removed := make(chan error, 1)
	go func() { removed <- w.remove() }()
	select {
	case err := <-removed:
		t.Fatalf("the file was removed while it got its name: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// isOpen reports whether the closing of a file has not begun.
func isOpen(file *os.File) bool {
	_, err := file.Stat()
	return err == nil
}
