package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// badDisk is a disk for files that are written: it can be full, and hang. Like NFS
// it has no files without a name.
type badDisk struct {
	*gate
	// dir is where it is mounted, and below what is on it.
	dir, below string
	// room is how many bytes can still be written.
	room atomic.Int64
}

// endless is more than anything needs.
const endless = 1 << 40

// mountBadDisk mounts one with endless room. It is released and unmounted when the
// test ends.
func mountBadDisk(t *testing.T) *badDisk {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("this test needs FUSE in this machine's kernel: %v", err)
	}
	base, err := os.MkdirTemp("/var/tmp", "kb") //nolint:usetesting // t.TempDir may be in memory, which is small
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	d := &badDisk{gate: newGate(), dir: filepath.Join(base, "disk"), below: filepath.Join(base, "below")}
	d.room.Store(endless)
	for _, dir := range []string{d.dir, d.below} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	root, err := fs.NewLoopbackRoot(d.below)
	if err != nil {
		t.Fatal(err)
	}
	server, err := fs.Mount(d.dir, &badNode{LoopbackNode: root.(*fs.LoopbackNode), disk: d}, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, FsName: "katabox-bad", DisableXAttrs: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.release()
		if err := unmountIdle(server); err != nil {
			t.Error(err)
		}
	})
	return d
}

// unmountIdle unmounts a disk. The last thread of a killed process may close its files
// after the process is no longer seen, so it tries for a moment.
func unmountIdle(server *fuse.Server) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := server.Unmount(); !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// badNode is one of its directories and files.
type badNode struct {
	*fs.LoopbackNode
	disk *badDisk
}

var (
	_ fs.NodeWrapChilder = (*badNode)(nil)
	_ fs.NodeCreater     = (*badNode)(nil)
	_ fs.FileWriter      = (*badFile)(nil)
	_ fs.FileFsyncer     = (*badFile)(nil)
)

// WrapChild implements fs.NodeWrapChilder.
func (n *badNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &badNode{LoopbackNode: ops.(*fs.LoopbackNode), disk: n.disk}
}

// Create implements fs.NodeCreater.
func (n *badNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, file, flags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, &badFile{LoopbackFile: file.(*fs.LoopbackFile), disk: n.disk}, flags, 0
}

// badFile is a file that was made on it, and is open.
type badFile struct {
	*fs.LoopbackFile
	disk *badDisk
}

// PassthroughFd has the kernel ask this process for each write.
func (*badFile) PassthroughFd() (int, bool) { return 0, false }

// Write implements fs.FileWriter.
func (f *badFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	f.disk.pass()
	if f.disk.room.Add(-int64(len(data))) < 0 {
		return 0, syscall.ENOSPC
	}
	return f.LoopbackFile.Write(ctx, data, off)
}

// Fsync implements fs.FileFsyncer.
func (f *badFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	f.disk.pass()
	return f.LoopbackFile.Fsync(ctx, flags)
}
