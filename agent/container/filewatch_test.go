package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// watchTimeout bounds each wait.
const watchTimeout = 30 * time.Second

// watching calls eachChange for a new file, and returns what its calls and its end are
// told by.
func watching(t *testing.T) (path string, changed <-chan struct{}, stop func(), ended <-chan error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "memory.events")
	writeText(t, path, "oom_kill 0")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	calls, end := make(chan struct{}, 100), make(chan error, 1)
	go func() { end <- eachChange(ctx, path, func() { calls <- struct{}{} }) }()
	receive(t, calls) // at once
	return path, calls, cancel, end
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(watchTimeout):
		t.Fatal("nothing has come")
	}
	return value
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEachChange(t *testing.T) {
	path, changed, stop, ended := watching(t)
	for i := range 3 {
		writeText(t, path, fmt.Sprint("oom_kill ", i+1))
		receive(t, changed)
	}
	stop()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}

// A file's removal does not end the watch: that is its caller's to do.
func TestEachChangeOfRemovedFile(t *testing.T) {
	path, changed, stop, ended := watching(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	receive(t, changed) // inotify says that it watches nothing any more
	select {
	case err := <-ended:
		t.Errorf("ended: %v", err)
	default:
	}
	stop()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}

func TestEachChangeLeavesNothing(t *testing.T) {
	before := openInotify(t)
	for range 20 {
		_, _, stop, ended := watching(t)
		if during := openInotify(t); during != before+1 {
			t.Errorf("%d inotify instances, want %d", during, before+1)
		}
		stop()
		receive(t, ended)
	}
	missing := filepath.Join(t.TempDir(), "memory.events")
	for range 20 {
		if err := eachChange(t.Context(), missing, func() { t.Error("called") }); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing file: %v", err)
		}
	}
	if after := openInotify(t); after != before {
		t.Errorf("%d inotify instances are open, %d were before", after, before)
	}
}

// A watch that ends before it begins ends.
func TestEachChangeTooLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.events")
	writeText(t, path, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := eachChange(ctx, path, func() {}); err != nil {
		t.Error(err)
	}
}

// openInotify counts this process's inotify instances.
func openInotify(t *testing.T) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && file == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
