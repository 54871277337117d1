package vhostuser

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

// reverser is a device that returns what it gets with the bytes reversed.
type reverser struct {
	queues []*Queue
	broken chan struct{}
	owner  Owner

	mu     sync.Mutex
	events []string
}

func newReverser(owner Owner) *reverser {
	return &reverser{queues: []*Queue{NewQueue(0), NewQueue(1)}, broken: make(chan struct{}, 1), owner: owner}
}

func (d *reverser) Features() uint64 { return 1 << 5 }
func (d *reverser) Config() []byte   { return []byte{9, 8, 7} }
func (d *reverser) Queues() []*Queue { return d.queues }
func (d *reverser) Owner() Owner     { return d.owner }

func (d *reverser) note(event string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, event)
}

func (d *reverser) Stopped(*Queue) { d.note("stopped") }

func (d *reverser) Kicked(q *Queue) {
	err := q.Do(func(r *Ring) error {
		for {
			var c Chain
			ok, err := r.Pop(&c)
			if !ok || err != nil {
				return err
			}
			p := make([]byte, c.Out.Len())
			c.Out.CopyTo(p)
			for i, j := 0, len(p)-1; i < j; i, j = i+1, j-1 {
				p[i], p[j] = p[j], p[i]
			}
			r.Push(c.Head, uint32(c.In.CopyFrom(p)))
		}
	})
	if errors.Is(err, ErrBroken) {
		d.note("broken")
		select {
		case d.broken <- struct{}{}:
		default: // that it broke is already known
		}
	}
}

// both runs a test with memory that is shared, and with memory that is reached
// in its owner, this process.
func both(t *testing.T, test func(t *testing.T, owner Owner)) {
	t.Run("mapped", func(t *testing.T) { test(t, nil) })
	t.Run("foreign", func(t *testing.T) { test(t, self{}) })
}

// serve serves d and returns the front end, and a channel for Serve's result.
func serve(t testing.TB, d Device) (*vhosttest.FrontEnd, <-chan error) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	back, front := os.NewFile(uintptr(fds[0]), "back"), os.NewFile(uintptr(fds[1]), "front")
	defer back.Close()
	defer front.Close()
	conn, err := net.FileConn(back)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended <- Serve(ctx, conn.(*net.UnixConn), d)
	}()
	t.Cleanup(func() { cancel(); <-gone })
	return vhosttest.New(t, front), ended
}

func await(t testing.TB, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("Serve did not end")
		return nil
	}
}

// roundTrip sends p through a queue and returns the answer.
func roundTrip(t *testing.T, f *vhosttest.FrontEnd, q *vhosttest.Queue, p string) string {
	t.Helper()
	out, outAddr := f.Mem.Alloc(len(p))
	in, inAddr := f.Mem.Alloc(len(p))
	copy(out, p)
	q.SetDesc(0, vhosttest.Desc{Addr: outAddr, Len: uint32(len(p)), Flags: next, Next: 1})
	q.SetDesc(1, vhosttest.Desc{Addr: inAddr, Len: uint32(len(p)), Flags: write})
	q.Offer(0)
	for {
		if head, n, ok := q.Used(); ok {
			if head != 0 || int(n) != len(p) {
				t.Errorf("chain %d came back with %d bytes", head, n)
			}
			return string(in)
		}
		if !q.Wait(20 * time.Second) {
			t.Fatal("no interrupt")
		}
	}
}

func TestServe(t *testing.T) {
	d := newReverser(nil)
	f, ended := serve(t, d)
	f.Handshake()
	if got, want := binary.LittleEndian.Uint64(f.Get(vhosttest.GetFeatures, nil)), coreFeatures|1<<5; got != want {
		t.Errorf("features %#x, want %#x", got, want)
	}
	if n := binary.LittleEndian.Uint64(f.Get(vhosttest.GetQueueNum, nil)); n != 2 {
		t.Errorf("%d queues, want 2", n)
	}
	config := f.Get(vhosttest.GetConfig, append(append(vhosttest.State(0, 3), 0, 0, 0, 0), 0, 0, 0))
	if diff := cmp.Diff([]byte{9, 8, 7}, config[12:]); diff != "" {
		t.Error("config (-want +got):", diff)
	}
	for i := range 2 {
		q := f.NewQueue(i, 16)
		q.Start(0)
		if got := roundTrip(t, f, q, "hello"); got != "olleh" {
			t.Errorf("queue %d: %q", i, got)
		}
	}
	f.Close()
	if err := await(t, ended); err != nil {
		t.Errorf("serve: %v", err)
	}
	for _, q := range d.queues {
		if err := q.Do(func(*Ring) error { return nil }); !errors.Is(err, ErrStopped) {
			t.Errorf("do after the end: %v", err)
		}
	}
	if len(d.events) != 0 {
		t.Error("events:", d.events)
	}
}

// TestPauseAndReset stops a queue, resumes it, and sets it up again.
func TestPauseAndReset(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		d := newReverser(owner)
		f, _ := serve(t, d)
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Start(0)
		roundTrip(t, f, q, "one")
		base := q.Stop()
		if base != 1 {
			t.Errorf("stopped at %d, want 1", base)
		}
		q.Start(base)
		if got := roundTrip(t, f, q, "two"); got != "owt" {
			t.Errorf("after a pause: %q", got)
		}
		q.Stop()
		q.Reset()
		q.Start(0)
		if got := roundTrip(t, f, q, "three"); got != "eerht" {
			t.Errorf("after a reset: %q", got)
		}
		if !f.Set(vhosttest.SetVringEnable, vhosttest.State(0, 0)) || d.queues[0].Running() {
			t.Error("a disabled queue runs")
		}
		if !f.Set(vhosttest.SetVringEnable, vhosttest.State(0, 1)) || !d.queues[0].Running() {
			t.Error("an enabled queue does not run")
		}
		want := []string{"stopped", "stopped", "stopped"}
		if diff := cmp.Diff(want, d.events); diff != "" {
			t.Error("events (-want +got):", diff)
		}
	})
}

// TestMemoryTableAgain moves running queues to a new table, as memory hot-plug
// does, while a queue is in use.
func TestMemoryTableAgain(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		f, _ := serve(t, newReverser(owner))
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Start(0)
		for range 50 {
			if !f.Set(vhosttest.SetMemTable, f.Mem.Table(), f.Mem.FD()) {
				t.Fatal("table refused")
			}
			if got := roundTrip(t, f, q, "again"); got != "niaga" {
				t.Fatalf("got %q", got)
			}
		}
	})
}

// TestCallReplaced checks that a new call descriptor is signalled immediately,
// because an interrupt may have gone to the old one.
func TestCallReplaced(t *testing.T) {
	f, _ := serve(t, newReverser(nil))
	f.Handshake()
	q := f.NewQueue(0, 8)
	q.Start(0)
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if !f.Set(vhosttest.SetVringCall, vhosttest.U64(0), fd) {
		t.Fatal("call refused")
	}
	if n, err := unix.Read(fd, make([]byte, 8)); n != 8 {
		t.Errorf("no interrupt: %v", err)
	}
}

// TestBrokenRing breaks a ring: the queue stops, and works after a reset.
func TestBrokenRing(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		d := newReverser(owner)
		f, _ := serve(t, d)
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Start(0)
		q.SetDesc(0, vhosttest.Desc{Addr: 1, Len: 1})
		q.Offer(0)
		<-d.broken
		if d.queues[0].Running() {
			t.Error("a broken queue runs on")
		}
		q.Stop()
		q.Reset()
		q.Start(0)
		if got := roundTrip(t, f, q, "well"); got != "llew" {
			t.Errorf("after a reset: %q", got)
		}
		if diff := cmp.Diff([]string{"broken", "stopped"}, d.events); diff != "" {
			t.Error("events (-want +got):", diff)
		}
	})
}

func TestServeRefuses(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	file, err := os.Create(t.TempDir() + "/regular")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	row := func(values ...uint64) []byte {
		p := vhosttest.U64(1)
		for _, v := range values {
			p = append(p, vhosttest.U64(v)...)
		}
		return p
	}
	sealed := vhosttest.NewMemory(t, unix.F_SEAL_SHRINK)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(event)
	for _, tc := range []struct {
		name    string
		req     uint32
		payload []byte
		fds     []int
		want    string
	}{
		{"memory of another kind", vhosttest.SetMemTable, sealed.Table(), []int{pipe[0]}, "not a regular file"},
		{"region beyond its file", vhosttest.SetMemTable, row(0, vhosttest.MemSize, 0, 4096), []int{sealed.FD()}, "of a memory file"},
		{"region wraps", vhosttest.SetMemTable, row(^uint64(0), 4096, 0, 0), []int{sealed.FD()}, "map memory region 0"},
		{"empty region", vhosttest.SetMemTable, row(0, 0, 0, 0), []int{sealed.FD()}, "map memory region 0"},
		{"table without memory", vhosttest.SetMemTable, sealed.Table(), nil, "0 descriptors"},
		{"queue of 3", vhosttest.SetVringNum, vhosttest.State(0, 3), nil, "3 entries"},
		{"queue of 65536", vhosttest.SetVringNum, vhosttest.State(0, 65536), nil, "65536 entries"},
		{"third queue", vhosttest.SetVringNum, vhosttest.State(2, 8), nil, "queue 2 of 2"},
		{"base beyond 16 bits", vhosttest.SetVringBase, vhosttest.State(0, 1<<16), nil, "base 65536"},
		{"feature not offered", vhosttest.SetFeatures, vhosttest.U64(1 << 29), nil, "not offered"},
		{"protocol feature not offered", vhosttest.SetProtocolFeatures, vhosttest.U64(1 << 1), nil, "not offered"},
		{"unknown request", 40, nil, nil, "request 40"},
		{"kick without descriptor", vhosttest.SetVringKick, vhosttest.U64(0), nil, "0 descriptors, want 1"},
		{"kick of a file", vhosttest.SetVringKick, vhosttest.U64(0), []int{int(file.Fd())}, "no eventfd"},
		{"kick of a pipe", vhosttest.SetVringKick, vhosttest.U64(0), []int{pipe[0]}, "no eventfd"},
		{"call of a pipe", vhosttest.SetVringCall, vhosttest.U64(0), []int{pipe[1]}, "no eventfd"},
		{"ring without memory", vhosttest.SetVringKick, vhosttest.U64(0), []int{event}, "no size or memory"},
		{"short payload", vhosttest.SetVringAddr, vhosttest.U64(0), nil, "payload of 8 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, ended := serve(t, newReverser(nil))
			// So that a queue starts at its kick; see setVringKick.
			f.Set(vhosttest.SetFeatures, vhosttest.U64(featVersion1))
			if f.Set(tc.req, tc.payload, tc.fds...) {
				t.Error("the request succeeded")
			}
			if err := await(t, ended); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("serve: %v, want %q", err, tc.want)
			}
		})
	}
}

func TestServeEndsWithContext(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	back := os.NewFile(uintptr(fds[0]), "back")
	conn, err := net.FileConn(back)
	if err != nil {
		t.Fatal(err)
	}
	back.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Serve(ctx, conn.(*net.UnixConn), newReverser(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}
