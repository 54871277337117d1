package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/fdtest"
	"github.com/katabox/katabox/internal/ownthread"
)

// newNetwork makes a network namespace that lives as long as the test.
func newNetwork(t *testing.T) (path, link string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	var ns *os.File
	errs := make(chan error, 1)
	ownthread.Go(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
		errs <- err
	})
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd())
	link, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, link
}

// The child runs in the namespace, along with its own other namespaces, and no
// thread of this process stays there.
func TestNetworkNamespace(t *testing.T) {
	path, link := newNetwork(t)
	for range 20 {
		var out bytes.Buffer
		p := shell(t, "readlink /proc/self/ns/net; echo $$", Options{
			Stdout:           &out,
			NetworkNamespace: path,
			Cloneflags:       unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		})
		await(t, p)
		if got := strings.Fields(out.String()); len(got) != 2 || got[0] != link || got[1] != "1" {
			t.Fatalf("the child is in %q, want %s; %s", got, link, p.Stderr())
		}
	}
	ctx := bounded(t)
	for threadsIn(t, link) > 0 {
		if ctx.Err() != nil {
			t.Fatal("a thread stays in the namespace")
		}
		runtime.Gosched() // nothing signals this
	}
}

// threadsIn counts this process's threads in a network namespace.
func threadsIn(t *testing.T, link string) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	n := 0
	for _, task := range tasks {
		if got, err := os.Readlink(task); err == nil && got == link {
			n++
		}
	}
	return n
}

func TestNoNetworkNamespace(t *testing.T) {
	dir := t.TempDir()
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	before := fdtest.Open(t)
	for path, want := range map[string]error{
		filepath.Join(dir, "gone"): os.ErrNotExist,
		file:                       unix.EINVAL,
		fifo:                       unix.EINVAL,
		dir:                        unix.EINVAL,
		"/proc/self/ns/mnt":        unix.EINVAL,
	} {
		marker := filepath.Join(dir, "started")
		_, err := Start(Options{Path: "/bin/sh", Args: []string{"-c", "touch " + marker}, NetworkNamespace: path})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "network namespace") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Errorf("%s: the child was started", path)
		}
	}
	if diff := cmp.Diff(before, fdtest.Open(t)); diff != "" {
		t.Errorf("open files: %s", diff)
	}
}
