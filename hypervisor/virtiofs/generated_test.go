package virtiofs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// mountGenerated mounts the kernel's own file systems below a new directory, as they
// are below a volume that is the host's root directory.
func mountGenerated(t *testing.T) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	dir = t.TempDir()
	for _, kind := range []string{"proc", "sysfs"} {
		at := filepath.Join(dir, kind)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("katabox-test", at, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	return dir
}

// What the kernel makes when it is read has no length before, and changes without a new
// time of modification. The guest must not cache it, or it reads empty files.
func TestGeneratedFiles(t *testing.T) {
	inMount(t, "TestGeneratedFilesInside", mountDir(t, mountGenerated(t), serving{policy: passthrough.Rootfs}))
}

func TestGeneratedFilesInside(t *testing.T) {
	dir := inside(t)
	if got, err := os.ReadFile(filepath.Join(dir, "sysfs/class/net/lo/mtu")); err != nil || len(got) == 0 {
		t.Errorf("a file of sysfs: %q, %v", got, err)
	}
	fd, err := unix.Open(filepath.Join(dir, "proc/uptime"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var texts [2]string
	for i := range texts {
		p := make([]byte, 100)
		n, err := unix.Pread(fd, p, 0)
		if err != nil || n == 0 {
			t.Fatalf("read of uptime: %d bytes, %v", n, err)
		}
		texts[i] = string(p[:n])
		time.Sleep(50 * time.Millisecond) // its unit is 10 ms
	}
	if texts[0] == texts[1] {
		t.Errorf("uptime stays %q", texts[0])
	}
}

// Only those: others keep what their policy says.
func TestGeneratedFilesAlone(t *testing.T) {
	dir := mountGenerated(t)
	if err := os.WriteFile(filepath.Join(dir, "usual"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, dir)
	at := func(path ...string) uint64 {
		node := uint64(1)
		for _, name := range path {
			node = c.mustLookup(node, name).NodeId
		}
		return node
	}
	for _, tt := range []struct {
		path   []string
		direct bool
	}{
		{[]string{"usual"}, false},
		{[]string{"proc", "loadavg"}, true},
		{[]string{"sysfs", "kernel", "notes"}, true},
		{[]string{"usual"}, false},
	} {
		open := c.open(at(tt.path...), unix.O_RDONLY)
		if got := open.OpenFlags&fuse.FOPEN_DIRECT_IO != 0; got != tt.direct {
			t.Errorf("%v is not cached: %v, want %v", tt.path, got, tt.direct)
		}
		c.release(open.Fh)
	}
}
