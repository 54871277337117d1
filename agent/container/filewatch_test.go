package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchTimeout bounds each wait.
const watchTimeout = 30 * time.Second

// eventGroup is an empty cgroup, whose cgroup.events a test changes.
type eventGroup struct {
	dir    string
	frozen int
}

// newEventGroup makes a cgroup where the host has cgroup v2, also beside v1.
func newEventGroup(t *testing.T) *eventGroup {
	t.Helper()
	root := "/sys/fs/cgroup"
	if !isCgroup2(root) {
		root = "/sys/fs/cgroup/unified"
	}
	if !isCgroup2(root) {
		t.Skip("needs a cgroup v2 hierarchy")
	}
	g := &eventGroup{dir: filepath.Join(root, "katabox-test-"+rand.Text())}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Skipf("needs to make cgroups: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(g.dir) })
	return g
}

func isCgroup2(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

func (g *eventGroup) events() string { return filepath.Join(g.dir, "cgroup.events") }

// change freezes the cgroup, or thaws it.
func (g *eventGroup) change(t *testing.T) {
	t.Helper()
	g.frozen = 1 - g.frozen
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.freeze"), fmt.Append(nil, g.frozen), 0); err != nil {
		t.Fatal(err)
	}
}

// watching calls eachChange for a cgroup. Each call sends what the file has then.
func watching(t *testing.T, g *eventGroup) (texts <-chan string, stop func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	calls, end := make(chan string, 1000), make(chan error, 1)
	go func() {
		end <- eachChange(ctx, g.events(), func() {
			text, err := os.ReadFile(g.events())
			if err != nil {
				text = []byte(err.Error())
			}
			calls <- string(text)
		})
	}()
	receive(t, calls) // at once
	return calls, cancel, end
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

// The last change is never missed, however soon it follows another one.
func TestEachChange(t *testing.T) {
	g := newEventGroup(t)
	texts, stop, ended := watching(t, g)
	for i := range 100 {
		for range 1 + i%3 {
			g.change(t)
		}
		want, text := fmt.Sprint("frozen ", g.frozen), ""
		for !strings.Contains(text, want) {
			text = receive(t, texts)
		}
	}
	stop()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}

// A cgroup that is removed does not end the watch: that is its caller's to do.
func TestEachChangeOfRemovedFile(t *testing.T) {
	g := newEventGroup(t)
	_, stop, ended := watching(t, g)
	if err := os.Remove(g.dir); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Errorf("ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	stop()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}

// A watch takes no inotify instance, and its file is closed when it ends.
func TestEachChangeLeavesNothing(t *testing.T) {
	g := newEventGroup(t)
	for range 20 {
		_, stop, ended := watching(t, g)
		if open := openFiles(t); open[g.events()] == 0 || open["anon_inode:inotify"] != 0 {
			t.Errorf("open files: %v", open)
		}
		stop()
		receive(t, ended)
	}
	if open := openFiles(t); open[g.events()] != 0 {
		t.Errorf("open files: %v", open)
	}
}

func TestEachChangeRefuses(t *testing.T) {
	none := func() { t.Error("called") }
	if err := eachChange(t.Context(), filepath.Join(t.TempDir(), "memory.events"), none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	regular := filepath.Join(t.TempDir(), "memory.events")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := eachChange(t.Context(), regular, func() {}); err == nil {
		t.Error("a file that cannot be polled was watched")
	}
}

// A watch that ends before it begins ends.
func TestEachChangeTooLate(t *testing.T) {
	g := newEventGroup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := eachChange(ctx, g.events(), func() {}); err != nil {
		t.Error(err)
	}
}

// openFiles counts this process's open files by what they are.
func openFiles(t *testing.T) map[string]int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]int{}
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil {
			open[file]++
		}
	}
	return open
}
