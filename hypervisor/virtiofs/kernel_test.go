package virtiofs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser"
	"github.com/katabox/katabox/hypervisor/virtiofs/contain"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
	"github.com/katabox/katabox/internal/ownthread"
)

// serving configures mountDir.
type serving struct {
	policy      passthrough.Policy
	descriptors int // 0 for many
	// refuse, if not nil, returns an error for requests that are not served.
	refuse func(*wire.Request) unix.Errno
	// hold, if not nil, reports whether a request is not to be answered until answer is called,
	// which may be at any time.
	hold func(r *wire.Request, answer func()) bool
}

// mountDir serves a directory to this machine's kernel, as FUSE over /dev/fuse,
// and returns the mount point. The client is the same as a guest's, except for
// submounts; only the ring is missing. The files must be used from another
// process (inMount): the runtime polls what it opens, in a thread that may be
// needed to serve that.
func mountDir(t *testing.T, dir string, as serving) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this test needs FUSE in this machine's kernel: %v", err)
	}
	at := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", dev)
	if err := unix.Mount("katabox-test", at, "fuse", unix.MS_NOSUID, options); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := os.NewFile(uintptr(fd), dir)
	fs, err := passthrough.New(passthrough.Options{
		Root: root, Descriptors: as.descriptors, Policy: func(string) passthrough.Policy { return as.policy },
		Special: anySpecial,
	})
	if err != nil {
		t.Fatal(err)
	}
	var threads sync.WaitGroup
	for range 4 {
		serveKernel(t, &threads, as, fs, root, dev)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
			_ = unix.Unmount(at, unix.MNT_FORCE|unix.MNT_DETACH)
		}
		threads.Wait()
		if err := fs.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_ = unix.Close(dev)
		_ = root.Close()
	})
	return at
}

// serveKernel starts a thread that serves requests of /dev/fuse, until the file
// system is unmounted.
func serveKernel(t *testing.T, threads *sync.WaitGroup, as serving, fs *passthrough.FS, root *os.File, dev int) {
	mounts, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	descriptors, err := contain.OpenDescriptors()
	if err != nil {
		t.Fatal(err)
	}
	threads.Add(1)
	ownthread.Go(func() {
		defer threads.Done()
		defer mounts.Close()
		defer descriptors.Close()
		if err := (contain.Jail{Mounts: mounts, Root: root, Descriptors: descriptors}).Enter(); err != nil {
			t.Error(err)
			return
		}
		thread, req := passthrough.NewThread(), wire.NewRequest()
		out, in := make([]byte, 1<<20+8192), make([]byte, 1<<20+8192)
		for {
			n, err := unix.Read(dev, out)
			if errors.Is(err, unix.ENODEV) {
				return
			}
			if err != nil {
				continue
			}
			serveOne(t, as, fs, thread, req, dev, out[:n], in)
		}
	})
}

func serveOne(t *testing.T, as serving, fs *passthrough.FS, thread *passthrough.Thread, req *wire.Request, dev int, out, in []byte) {
	if h := (*fuse.InitIn)(ptr(out)); wire.Op(h.Opcode) == wire.Init {
		h.Flags |= fuse.CAP_SUBMOUNTS // only virtio-fs offers it
	}
	if err := req.Load(vhostuser.Plain(out), vhostuser.Plain(in)); err != nil {
		t.Error(err)
		return
	}
	if as.hold != nil && as.hold(req, failLater(dev, req.Header().Unique)) {
		return
	}
	errno := unix.Errno(0)
	if as.refuse != nil {
		errno = as.refuse(req)
	}
	if errno == 0 {
		errno = fs.Serve(thread, req)
	}
	written, err := req.Finish(errno)
	if err != nil {
		t.Error(err)
	}
	if written > 0 {
		if req.Op() == wire.Init {
			(*initReply)(ptr(in)).Flags &^= fuse.CAP_SUBMOUNTS
		}
		_, _ = unix.Write(dev, in[:written]) // an interrupted request is gone
	}
}

// failLater returns what answers a request with EIO.
func failLater(dev int, unique uint64) func() {
	return func() {
		h := fuse.OutHeader{Status: -int32(unix.EIO), Unique: unique}
		h.Length = uint32(unsafe.Sizeof(h))
		_, _ = unix.Write(dev, bytesOf(&h))
	}
}

// initReply is the reply to FUSE_INIT.
type initReply struct {
	fuse.OutHeader
	fuse.InitOut
}

// envInside names the directory for a test that runs in another process.
const envInside = "KATABOX_TEST_INSIDE"

// inMount runs a test of this package in another process, on a directory.
func inMount(t *testing.T, test, dir string, env ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), envInside+"="+dir), env...)
	cmd.Dir = "/"
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", test, err, text)
	}
	return string(text)
}

// inside returns the directory in which this process must work; it skips the
// test unless inMount runs it.
func inside(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(envInside)
	if dir == "" {
		t.Skip("another test runs this one")
	}
	return filepath.Clean(dir)
}
