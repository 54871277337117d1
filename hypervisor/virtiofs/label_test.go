package virtiofs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// A file's SELinux label belongs to the host's policy. The guest neither sees nor
// changes it: an owner may set it on a kernel whose policy allows that to the shim.
func TestHostsLabel(t *testing.T) {
	const label = "security.selinux"
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(file, label, []byte("host's"), 0); err != nil {
		t.Skipf("cannot label a file: %v", err)
	}
	c := newClient(t, dir)
	node := c.mustLookup(1, "f").NodeId
	if got, errno := c.getxattr(node, label); errno != unix.ENODATA {
		t.Errorf("get: %q, %v; want %v", got, errno, unix.ENODATA)
	}
	if got := c.attrs(node); strings.Contains(got, label) {
		t.Errorf("the file's list is %q", got)
	}
	if errno := c.setxattr(node, label, "guest's"); errno != unix.EPERM {
		t.Errorf("set: %v, want %v", errno, unix.EPERM)
	}
	if errno, _ := call(c, wire.Removexattr, node, &fuse.InHeader{}, name(label)); errno != unix.ENODATA {
		t.Errorf("remove: %v, want %v", errno, unix.ENODATA)
	}
	value := make([]byte, 16)
	if n, err := unix.Getxattr(file, label, value); err != nil || string(value[:n]) != "host's" {
		t.Errorf("on the host: %q, %v", value[:max(n, 0)], err)
	}
}
