package task_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// hold is a hook that signals its call and then waits.
func hold(called chan<- struct{}, release <-chan struct{}) fakeguest.Hook {
	return func(ctx context.Context, _ proto.Message) error {
		close(called)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readFIFO makes a FIFO and reads four bytes from it.
func readFIFO(t *testing.T, path string) chan []byte {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	got := make(chan []byte, 1)
	go func() {
		buf := make([]byte, 4)
		if _, err := io.ReadFull(f, buf); err == nil {
			got <- buf
		}
	}()
	return got
}
