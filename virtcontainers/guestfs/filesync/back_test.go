package filesync

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/hungfs"
)

// ReadFile stands for the guest's ReadFile.
func (g *fakeGuest) ReadFile(_ context.Context, path string) ([]byte, error) {
	return os.ReadFile(g.path(path))
}

// Back brings what a container wrote into its copy of a file to the host; the
// host's later changes are no longer copied.
func TestBack(t *testing.T) {
	source, g := t.TempDir()+"/log", newGuest(t)
	write(t, source, "before, and longer than what comes")
	c := start(t, g, source, roomy)
	must(t, os.WriteFile(g.path(target), []byte("last words"), 0o600))
	must(t, c.Back(t.Context(), g))
	if got, err := os.ReadFile(source); err != nil || string(got) != "last words" {
		t.Errorf("on the host: %q, %v", got, err)
	}
	if got, err := os.ReadFile(g.path(target)); err != nil || string(got) != "last words" {
		t.Errorf("in the guest: %q, %v", got, err)
	}
}

// Back does not change what is no longer a regular file, and does not copy a
// directory.
func TestBackRefused(t *testing.T) {
	dir, g := t.TempDir(), newGuest(t)
	write(t, dir+"/other", "other")
	write(t, dir+"/log", "")
	c := start(t, g, dir+"/log", roomy)
	must(t, os.Remove(dir+"/log"))
	if err := c.Back(t.Context(), g); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that has gone: %v", err)
	}
	must(t, os.Symlink("other", dir+"/log"))
	if err := c.Back(t.Context(), g); err == nil {
		t.Error("a link is followed")
	}
	if got, err := os.ReadFile(dir + "/other"); err != nil || string(got) != "other" {
		t.Errorf("beside it: %q, %v", got, err)
	}
	g = newGuest(t)
	whole := start(t, g, dir, roomy)
	if err := whole.Back(t.Context(), g); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a directory: %v", err)
	}
}

// Neither the end of a copy nor Back waits for a file system that hangs for longer than
// a time.
func TestEndWhileTheSourceHangs(t *testing.T) {
	source, g := t.TempDir(), newGuest(t)
	below := source + "/below"
	must(t, os.Mkdir(below, 0o700))
	c := start(t, g, source, roomy)
	hung, release := hungfs.Mount(t)
	t.Cleanup(release) // before the copy's Close
	must(t, unix.Mount(hung, below, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(below, unix.MNT_DETACH)) })
	c.watch.signal()
	time.Sleep(20 * quietTime) // it looks
	over := errors.New("time is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, over)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.CloseIn(ctx) }()
	select {
	case err := <-ended:
		if !errors.Is(err, over) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
