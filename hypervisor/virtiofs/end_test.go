package virtiofs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// A connection that does not end does not keep Close from returning.
func TestCloseOfAStuckConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{stop: -1, closed: make(chan struct{})}
		s := &Server{pool: p, served: make(chan struct{}), cancel: func() {}}
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), "still being served") {
			t.Errorf("close: %v", err)
		}
		if !p.closing {
			t.Error("the threads are not told to end")
		}
	})
}

// To watch a kick does not write to it: it may be full, and blocking.
func TestWatchOfAFullKick(t *testing.T) {
	s, _ := serveDir(t, t.TempDir(), passthrough.Auto)
	fd, err := unix.Eventfd(1<<31, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	before, after := make([]byte, 8), make([]byte, 8)
	if _, err := unix.Read(fd, before); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, before); err != nil {
		t.Fatal(err)
	}
	if err := s.pool.watch(requestQueue, fd); err != nil {
		t.Fatal(err)
	}
	s.pool.unwatch(requestQueue)
	if _, err := unix.Read(fd, after); err != nil || string(after) != string(before) {
		t.Errorf("the kick's counter was %x and is %x, %v", before, after, err)
	}
}

// A front end that has an interrupt wait does not keep the share from ending.
func TestCloseWhileAnInterruptWaits(t *testing.T) {
	s, f := serveDir(t, t.TempDir(), passthrough.Auto)
	f.Handshake()
	q := f.NewQueue(requestQueue, 128)
	q.Start(0)
	_, out := f.Mem.Alloc(4096)
	q.SetDesc(0, vhosttest.Desc{Addr: out, Len: 64})
	q.BlockCall()
	q.Offer(0)
	for used := false; !used; time.Sleep(time.Millisecond) {
		_, _, used = q.Used()
	}
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > closeWait/2 {
		t.Errorf("close took %v", took)
	}
}
