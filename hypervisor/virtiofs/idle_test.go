package virtiofs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// A mount is idle when the guest has released all that it had open there, also what
// the host closed before.
func TestIdle(t *testing.T) {
	share := t.TempDir()
	for _, dir := range []string{"id/rootfs", "other"} {
		if err := os.MkdirAll(filepath.Join(share, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		mountTmpfs(t, filepath.Join(share, dir))
		if err := os.WriteFile(filepath.Join(share, dir, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server, front := serveDir(t, share, passthrough.Auto)
	c := rawClientOf(t, front).begin()
	root := c.mustLookup(c.mustLookup(1, "id").NodeId, "rootfs").NodeId
	file := c.mustLookup(root, "file").NodeId
	wantIdle(t, server, true)
	other := c.open(c.mustLookup(c.mustLookup(1, "other").NodeId, "file").NodeId, unix.O_RDONLY)
	wantIdle(t, server, true)
	first, second := c.open(file, unix.O_RDONLY), c.open(file, unix.O_RDWR)
	wantIdle(t, server, false)
	if err := server.Drop(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	c.release(other.Fh)
	c.release(first.Fh)
	wantIdle(t, server, false)
	c.release(second.Fh)
	wantIdle(t, server, true)
}

// wantIdle waits for an idle mount: a request counts for a moment after its answer.
func wantIdle(t *testing.T, server *Server, want bool) {
	t.Helper()
	for _, path := range []string{"id", "id/rootfs"} {
		got := server.Idle(path)
		for deadline := time.Now().Add(10 * time.Second); want && !got && time.Now().Before(deadline); got = server.Idle(path) {
			time.Sleep(time.Millisecond)
		}
		if got != want {
			t.Errorf("%s is idle: %v, want %v", path, got, want)
		}
	}
}

// A request counts until it is answered.
func TestServes(t *testing.T) {
	server, _ := serveDir(t, t.TempDir(), passthrough.Auto)
	const tree = 7
	j := &job{}
	if !server.pool.reserve() || !server.pool.enter(j, tree) {
		t.Fatal("there is no room")
	}
	if !server.pool.serves([]uint32{tree - 1, tree}) || server.pool.serves([]uint32{tree - 1}) {
		t.Error("the request does not count")
	}
	server.pool.leave(j)
	if server.pool.serves([]uint32{tree}) {
		t.Error("it counts after its answer")
	}
}
