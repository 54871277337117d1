package virtiofs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// usedIn returns how many bytes of a file system are in use.
func usedIn(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return (st.Blocks - st.Bfree) * uint64(st.Bsize)
}

// awaitSpace waits until a file system has so many bytes in use.
func awaitSpace(t *testing.T, path string, want uint64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); usedIn(t, path) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes of the file system are in use, want %d", usedIn(t, path), want)
		}
	}
}

// A file that the host deletes frees its space although the guest, which has used
// it, still remembers it; unless the guest has it open.
func TestHostDeletesWhatTheGuestRemembers(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	volume := filepath.Join(dir, "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, volume)
	empty := usedIn(t, volume)
	vol := c.mustLookup(1, "volume").NodeId
	text := string(make([]byte, 100<<10))
	closed := c.create(vol, "closed", unix.O_RDWR, 0o600)
	c.write(closed.Fh, 0, text)
	c.release(closed.Fh)
	open := c.create(vol, "open", unix.O_RDWR, 0o600)
	c.write(open.Fh, 0, text)
	both := usedIn(t, volume)
	for _, file := range []string{"closed", "open"} {
		if err := os.Remove(filepath.Join(volume, file)); err != nil {
			t.Fatal(err)
		}
	}
	awaitSpace(t, volume, empty+(both-empty)/2)
	if attr := ask[fuse.AttrOut](c, wire.Getattr, open.NodeId, &fuse.GetAttrIn{}); attr.Ino != open.Ino || attr.Size != 100<<10 {
		t.Errorf("fstat of the open one: file %d of %d bytes, want %d of %d", attr.Ino, attr.Size, open.Ino, 100<<10)
	}
	if got := c.read(open.Fh, 0, 200<<10); got != text {
		t.Errorf("the open one has %d bytes, want %d", len(got), len(text))
	}
	if errno, _ := call(c, wire.Getattr, closed.NodeId, &fuse.GetAttrIn{}); errno != unix.ESTALE {
		t.Errorf("stat of the closed one: %v, want ESTALE", errno)
	}
	if errno, _ := call(c, wire.Open, closed.NodeId, &fuse.OpenIn{}); errno != unix.ESTALE {
		t.Errorf("open of the closed one: %v, want ESTALE", errno)
	}
	c.release(open.Fh)
	awaitSpace(t, volume, empty)
}
