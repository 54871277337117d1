package virtiofs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// hungFile is a file of a file system that hangs when its files are closed.
type hungFile struct {
	fs.Inode
	flushing chan<- struct{}
	end      <-chan struct{}
}

var (
	_ fs.NodeOpener    = (*hungFile)(nil)
	_ fs.NodeFlusher   = (*hungFile)(nil)
	_ fs.NodeGetattrer = (*hungFile)(nil)
)

func (f *hungFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) unix.Errno {
	out.Mode = unix.S_IFREG | 0o644
	return 0
}

func (f *hungFile) Open(context.Context, uint32) (fs.FileHandle, uint32, unix.Errno) {
	return nil, 0, 0
}

func (f *hungFile) Flush(context.Context, fs.FileHandle) unix.Errno {
	f.flushing <- struct{}{}
	<-f.end
	return 0
}

// hangsAtClose mounts a file system with a file "file" whose closing hangs until the
// test's end. Each attempt to close it is in flushing.
func hangsAtClose(t *testing.T, at string) (flushing <-chan struct{}) {
	t.Helper()
	began, ended := make(chan struct{}, 8), make(chan struct{})
	mountFUSE(t, at, map[string]fs.InodeEmbedder{"file": &hungFile{flushing: began, end: ended}})
	t.Cleanup(func() { close(ended) })
	return began
}

// A file that the guest has left open on a file system that hangs when it is closed holds
// up neither the removal of its mount nor the end of the server, and no file of another
// mount.
func TestHungClose(t *testing.T) {
	share := t.TempDir()
	for _, name := range []string{"dropped", "kept", "well"} {
		if err := os.Mkdir(filepath.Join(share, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mountTmpfs(t, filepath.Join(share, "well"))
	if err := os.WriteFile(filepath.Join(share, "well", "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dropped, kept := hangsAtClose(t, filepath.Join(share, "dropped")), hangsAtClose(t, filepath.Join(share, "kept"))
	server, front := serveDir(t, share, passthrough.Auto)
	c := rawClientOf(t, front).begin()
	for _, name := range []string{"dropped", "kept", "well"} {
		file := c.mustLookup(c.mustLookup(1, name).NodeId, "file").NodeId
		if errno, _ := call(c, wire.Open, file, &fuse.OpenIn{Flags: unix.O_WRONLY}); errno != 0 {
			t.Fatalf("open the file in %s: %v", name, errno)
		}
	}
	await := func(what string, flushing <-chan struct{}, closing func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := closing(ctx); err == nil || !strings.Contains(err.Error(), `"`+what+`"`) {
			t.Errorf("error for the mount %s: %v, want one that names it", what, err)
		}
		select {
		case <-flushing:
		case <-time.After(10 * time.Second):
			t.Fatalf("the file in %s was not closed", what)
		}
	}
	await("dropped", dropped, func(ctx context.Context) error { return server.Drop(ctx, "dropped") })
	await("kept", kept, server.fs.Close)
	if err := unix.Unmount(filepath.Join(share, "well"), 0); err != nil {
		t.Errorf("unmount the other mount: %v", err)
	}
}
