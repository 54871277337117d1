package virtiofs

import (
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

func (c *client) setxattr(node uint64, attr, value string) unix.Errno {
	c.t.Helper()
	errno, _ := call(c, wire.Setxattr, node, &fuse.SetXAttrIn{Size: uint32(len(value))}, name(attr), []byte(value))
	return errno
}

func (c *client) getxattr(node uint64, attr string) (string, unix.Errno) {
	c.t.Helper()
	errno, value := call(c, wire.Getxattr, node, &fuse.GetXAttrIn{Size: 4096}, name(attr))
	return string(value), errno
}

// attrs lists a file's attributes, with a space behind each.
func (c *client) attrs(node uint64) string {
	c.t.Helper()
	length := ask[fuse.GetXAttrOut](c, wire.Listxattr, node, &fuse.GetXAttrIn{}).Size
	if length == 0 {
		return ""
	}
	if errno, _ := call(c, wire.Listxattr, node, &fuse.GetXAttrIn{Size: length - 1}); errno != unix.ERANGE {
		c.t.Errorf("list into a buffer that is too short: %v, want %v", errno, unix.ERANGE)
	}
	errno, list := call(c, wire.Listxattr, node, &fuse.GetXAttrIn{Size: length})
	if errno != 0 || len(list) != int(length) {
		c.t.Errorf("list: %v, %d bytes, want %d", errno, len(list), length)
	}
	return strings.ReplaceAll(string(list), "\x00", " ")
}

// The guest's trusted attributes are stored under other names on the host, which the
// guest cannot use itself.
func TestTrustedAttributes(t *testing.T) {
	dir := t.TempDir()
	const stored = "user.virtiofs.trusted.overlay.opaque"
	if err := unix.Setxattr(dir, "user.virtiofs.other", []byte("host's"), 0); err != nil {
		t.Skipf("needs attributes: %v", err)
	}
	c := newClient(t, dir)
	for attr, value := range map[string]string{"trusted.overlay.opaque": "y", "user.a": "1"} {
		if errno := c.setxattr(1, attr, value); errno != 0 {
			t.Errorf("set %s: %v", attr, errno)
		}
		if got, errno := c.getxattr(1, attr); errno != 0 || got != value {
			t.Errorf("get %s: %q, %v", attr, got, errno)
		}
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(dir, stored, value); err != nil || string(value[:n]) != "y" {
		t.Errorf("on the host: %q, %v", value[:max(n, 0)], err)
	}
	if got := c.attrs(1); !strings.Contains(got, "trusted.overlay.opaque ") || strings.Contains(got, "virtiofs") || !strings.Contains(got, "user.a ") {
		t.Errorf("root's list is %q", got)
	}
	c.uid, c.gid = 1000, 1000
	if got := c.attrs(1); strings.Contains(got, "trusted") || !strings.Contains(got, "user.a ") {
		t.Errorf("another user's list is %q", got)
	}
	c.uid, c.gid = 0, 0
	for _, attr := range []string{stored, "user.virtiofs.other", "user.virtiofs."} {
		if errno := c.setxattr(1, attr, "forged"); errno != unix.EPERM {
			t.Errorf("set %s: %v, want %v", attr, errno, unix.EPERM)
		}
		if got, errno := c.getxattr(1, attr); errno != unix.ENODATA {
			t.Errorf("get %s: %q, %v, want %v", attr, got, errno, unix.ENODATA)
		}
		if errno, _ := call(c, wire.Removexattr, 1, &fuse.InHeader{}, name(attr)); errno != unix.ENODATA {
			t.Errorf("remove %s: %v, want %v", attr, errno, unix.ENODATA)
		}
	}
	if errno, _ := call(c, wire.Removexattr, 1, &fuse.InHeader{}, name("trusted.overlay.opaque")); errno != 0 {
		t.Errorf("remove: %v", errno)
	}
	if _, err := unix.Getxattr(dir, stored, nil); err != unix.ENODATA {
		t.Errorf("on the host it is there still: %v", err)
	}
}

// A list that is long on the host is read completely.
func TestManyTrustedAttributes(t *testing.T) {
	c := newClient(t, t.TempDir())
	file := c.create(1, "f", unix.O_RDWR, 0o600)
	want := 0
	for i := range 40 {
		if c.setxattr(file.NodeId, "trusted."+strings.Repeat(string(rune('A'+i)), 60), "") == 0 {
			want++
		}
	}
	if want == 0 {
		t.Skip("needs attributes")
	}
	if got := strings.Count(c.attrs(file.NodeId), "trusted."); got != want {
		t.Errorf("%d are listed, want %d", got, want)
	}
	if errno := c.setxattr(file.NodeId, "trusted."+strings.Repeat("x", 300), ""); errno == 0 {
		t.Error("a name that is too long was taken")
	}
}
