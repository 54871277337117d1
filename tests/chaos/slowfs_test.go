package chaos

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// slowFS is a file system on the host, served by this process, that can be made
// to hang, like an NFS mount.
type slowFS struct {
	*gate
	reads  *gate // for those of the large file alone
	dir    string
	server *fuse.Server
}

// mountSlow mounts one with two files in it. It is released and unmounted when the
// test ends.
func mountSlow(t *testing.T) *slowFS {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("this test needs FUSE in this machine's kernel: %v", err)
	}
	s := &slowFS{gate: newGate(), reads: newGate(), dir: t.TempDir()}
	var err error
	s.server, err = fs.Mount(s.dir, &slowRoot{slow: s}, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, FsName: "katabox-slow", DisableXAttrs: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.release()
		s.reads.release()
		if err := s.server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// slowRoot is its root directory, slowFile the small file, and largeFile the other.
type slowRoot struct {
	fs.Inode
	slow *slowFS
}

type slowFile struct {
	fs.Inode
	slow *slowFS
}

type largeFile struct{ slowFile }

var (
	_ fs.NodeOnAdder   = (*slowRoot)(nil)
	_ fs.NodeLookuper  = (*slowRoot)(nil)
	_ fs.NodeGetattrer = (*slowRoot)(nil)
	_ fs.NodeGetattrer = (*slowFile)(nil)
	_ fs.NodeOpener    = (*slowFile)(nil)
	_ fs.NodeReader    = (*slowFile)(nil)
	_ fs.NodeGetattrer = (*largeFile)(nil)
	_ fs.NodeReader    = (*largeFile)(nil)
)

const (
	slowText  = "slow\n"
	largeSize = 1 << 20
)

// OnAdd implements fs.NodeOnAdder.
func (r *slowRoot) OnAdd(ctx context.Context) {
	r.AddChild("file", r.NewPersistentInode(ctx, &slowFile{slow: r.slow}, fs.StableAttr{Mode: syscall.S_IFREG}), true)
	r.AddChild("large", r.NewPersistentInode(ctx, &largeFile{slowFile{slow: r.slow}}, fs.StableAttr{Mode: syscall.S_IFREG}), true)
}

// Lookup implements fs.NodeLookuper.
func (r *slowRoot) Lookup(_ context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	r.slow.pass()
	child := r.GetChild(name)
	if child == nil {
		return nil, syscall.ENOENT
	}
	out.Mode, out.Size = syscall.S_IFREG|0o644, uint64(len(slowText))
	if _, large := child.Operations().(*largeFile); large {
		out.Size = largeSize
	}
	return child, 0
}

// Getattr implements fs.NodeGetattrer.
func (r *slowRoot) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	r.slow.pass()
	out.Mode = syscall.S_IFDIR | 0o755
	return 0
}

// Getattr implements fs.NodeGetattrer.
func (f *slowFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.slow.pass()
	out.Mode, out.Size = syscall.S_IFREG|0o644, uint64(len(slowText))
	return 0
}

// Open implements fs.NodeOpener.
func (f *slowFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.slow.pass()
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (f *slowFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.slow.pass()
	return fuse.ReadResultData([]byte(slowText)[min(off, int64(len(slowText))):]), 0
}

// Getattr implements fs.NodeGetattrer.
func (f *largeFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.slow.pass()
	out.Mode, out.Size = syscall.S_IFREG|0o644, largeSize
	return 0
}

// Read implements fs.NodeReader.
func (f *largeFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.slow.reads.pass()
	clear(dest)
	return fuse.ReadResultData(dest[:min(int64(len(dest)), max(largeSize-off, 0))]), 0
}

// The file system answers, hangs, and answers again.
func TestSlowFS(t *testing.T) {
	s := mountSlow(t)
	name := filepath.Join(s.dir, "file")
	if got, err := os.ReadFile(name); string(got) != slowText || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	s.hang()
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(name)
		read <- err
	}()
	if err := s.awaitHeld(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-read:
		t.Fatalf("it answers: %v", err)
	default:
	}
	s.release()
	if err := <-read; err != nil {
		t.Fatal(err)
	}
}
