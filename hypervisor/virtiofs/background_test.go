package virtiofs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// hungReaders is how many threads read files that hang: fewer than the reads that a kernel
// may have unanswered.
const hungReaders = 300

// A kernel that waits for reads of one file system of the host, in many threads, reads
// files of others: it has one bound of such reads for all that are in the share
// (fs/fuse/dev.c, fuse_block_alloc).
func TestReadsBesideHungOnes(t *testing.T) {
	dir := t.TempDir()
	for i := range hungReaders {
		// It is longer than what is read ahead at first: a shorter one would be read in the
		// foreground beyond the congestion threshold (fs/fuse/file.c, fuse_readahead).
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("hung", i)), make([]byte, 64<<10), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := hungReads{all: make(chan struct{})}
	go func() { // the threads that serve are shut in
		<-h.all
		_ = os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644)
	}()
	t.Cleanup(h.release)
	at := mountDir(t, dir, serving{policy: passthrough.Auto, hold: h.hold})
	inMount(t, "TestInsideReadsBesideHungOnes", at)
}

// hungReads are the first reads, which are not answered.
type hungReads struct {
	all chan struct{} // closed when there are hungReaders, and at the end

	mu       sync.Mutex
	waiting  []func()
	released bool
}

// hold holds the first reads until a directory is made.
func (h *hungReads) hold(r *wire.Request, answer func()) bool {
	switch r.Op() {
	case wire.Mkdir:
		h.release()
		return false
	case wire.Read:
	default:
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == hungReaders || h.released {
		return false
	}
	if h.waiting = append(h.waiting, answer); len(h.waiting) == hungReaders {
		close(h.all)
	}
	return true
}

// release answers the reads that wait, once: a second answer may go to another reader.
func (h *hungReads) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return
	}
	h.released = true
	if len(h.waiting) < hungReaders {
		close(h.all)
	}
	for _, answer := range h.waiting {
		answer()
	}
}

func TestInsideReadsBesideHungOnes(t *testing.T) {
	dir := inside(t)
	t.Cleanup(func() {
		if err := unix.Mkdir(filepath.Join(dir, "end"), 0o755); err != nil {
			t.Error(err)
		}
	})
	for i := range hungReaders {
		go func() { _, _ = rawRead(filepath.Join(dir, fmt.Sprint("hung", i))) }()
	}
	ready := filepath.Join(dir, "ready")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Access(ready, unix.F_OK)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOENT) || time.Now().After(end) {
			t.Fatalf("%d readers have not all made their requests: %v", hungReaders, err)
		}
	}
	read := make(chan string, 1)
	go func() {
		text, err := rawRead(filepath.Join(dir, "other"))
		read <- fmt.Sprintf("%s, %v", text, err)
	}()
	select {
	case got := <-read:
		if got != "text, <nil>" {
			t.Errorf("the other file: %s", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("the other file is not read while reads of some hang")
	}
}

// rawRead reads a short file without the runtime's poller.
func rawRead(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	p := make([]byte, 16)
	n, err := unix.Read(fd, p)
	return string(p[:max(n, 0)]), err
}

// The requests for pages leave a part of the guest's queue to the others, however short it is.
func TestBackground(t *testing.T) {
	for size, want := range map[int][2]uint16{8: {6, 4}, 128: {96, 72}, 512: {384, 288}, 1024: {384, 288}} {
		_, f := serveDir(t, t.TempDir(), passthrough.Auto)
		c := rawClientOn(t, f, size)
		in := &fuse.InitIn{Major: 7, Minor: 38, Flags: ^uint32(0)}
		out := ask[fuse.InitOut](c, wire.Init, 0, in)
		if got := [2]uint16{out.MaxBackground, out.CongestionThreshold}; got != want {
			t.Errorf("a queue of %d entries has %d requests for pages, congested at %d; want %d", size, got[0], got[1], want)
		}
	}
}
