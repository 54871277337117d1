package virtiofs

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// fileCapabilities is a value of security.capability: CAP_NET_RAW, permitted and effective
// (include/uapi/linux/capability.h, struct vfs_cap_data of revision 2).
var fileCapabilities = "\x01\x00\x00\x02\x00\x20\x00\x00" + strings.Repeat("\x00", 12)

// A guest makes no device nodes and no file capabilities where it may not, whatever its
// kernel says of the sender; an overlayfs's mark is no device. What was allowed
// meanwhile can be made.
func TestNothingSpecial(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Pointer[passthrough.Special]
	allowed.Store(&passthrough.Special{})
	_, front := serveAs(t, dir, Options{
		Policy:  func(string) passthrough.Policy { return passthrough.Auto },
		Special: func(string) passthrough.Special { return *allowed.Load() },
	})
	c := rawClientOf(t, front).begin()
	program := c.mustLookup(1, "program").NodeId
	mknod := func(n string, mode, rdev uint32) unix.Errno {
		errno, _ := call(c, wire.Mknod, 1, &fuse.MknodIn{Mode: mode, Rdev: rdev}, name(n))
		return errno
	}
	for _, test := range []struct {
		name       string
		mode, rdev uint32
		want       unix.Errno
	}{
		{"disk", unix.S_IFBLK | 0o666, 8 << 8, unix.EPERM},
		{"disk 0:0", unix.S_IFBLK | 0o666, 0, unix.EPERM},
		{"memory", unix.S_IFCHR | 0o666, 1<<8 | 1, unix.EPERM},
		{"0:1", unix.S_IFCHR | 0o666, 1, unix.EPERM},
		{"0:256", unix.S_IFCHR | 0o666, 1 << 20, unix.EPERM},
		{"whiteout", unix.S_IFCHR, 0, 0},
		{"fifo", unix.S_IFIFO | 0o600, 8 << 8, 0},
		{"socket", unix.S_IFSOCK | 0o600, 0, 0},
		{"file", unix.S_IFREG | 0o600, 8 << 8, 0},
	} {
		if errno := mknod(test.name, test.mode, test.rdev); errno != test.want {
			t.Errorf("mknod %s: %v, want %v", test.name, errno, test.want)
		}
		if _, err := os.Lstat(filepath.Join(dir, test.name)); (err == nil) != (test.want == 0) {
			t.Errorf("%s on the host: %v", test.name, err)
		}
	}
	if errno := c.setxattr(program, "security.capability", fileCapabilities); errno != unix.EPERM {
		t.Errorf("set capabilities: %v, want EPERM", errno)
	}
	if got, errno := c.getxattr(program, "security.capability"); errno != unix.ENODATA {
		t.Errorf("capabilities: %q, %v", got, errno)
	}

	allowed.Store(&passthrough.Special{Devices: true})
	if errno := mknod("disk", unix.S_IFBLK|0o600, 8<<8); errno != 0 {
		t.Errorf("mknod that is allowed: %v", errno)
	}
	if errno := c.setxattr(program, "security.capability", fileCapabilities); errno != unix.EPERM {
		t.Errorf("set capabilities where devices are allowed: %v, want EPERM", errno)
	}

	allowed.Store(&passthrough.Special{Capabilities: true})
	if errno := c.setxattr(program, "security.capability", fileCapabilities); errno != 0 {
		t.Errorf("set capabilities that are allowed: %v", errno)
	}
	if errno := mknod("another", unix.S_IFBLK|0o600, 8<<8); errno != unix.EPERM {
		t.Errorf("mknod where capabilities are allowed: %v, want EPERM", errno)
	}

	allowed.Store(&passthrough.Special{})
	if errno, _ := call(c, wire.Removexattr, program, &fuse.InHeader{}, name("security.capability")); errno != 0 {
		t.Errorf("remove capabilities, as the guest's kernel does after a write: %v", errno)
	}
}
