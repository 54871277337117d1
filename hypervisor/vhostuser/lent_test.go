package vhostuser

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

// holder is a device that keeps what it takes, and is a KickWaiter.
type holder struct {
	queue   *Queue
	watched chan int
	owner   Owner
}

func newHolder(owner Owner) *holder {
	return &holder{queue: NewQueue(0), watched: make(chan int, 8), owner: owner}
}

func (h *holder) Features() uint64 { return 0 }
func (h *holder) Config() []byte   { return nil }
func (h *holder) Queues() []*Queue { return []*Queue{h.queue} }
func (h *holder) Owner() Owner     { return h.owner }
func (h *holder) Stopped(*Queue)   {}
func (h *holder) Kicked(*Queue)    { panic("a KickWaiter was kicked") }
func (h *holder) Unwatch(*Queue)   {}
func (h *holder) Watch(_ *Queue, fd int) error {
	h.watched <- fd
	return nil
}

// offerOne makes one chain of 4 bytes each way available.
func offerOne(f *vhosttest.FrontEnd, q *vhosttest.Queue, head int) (in []byte) {
	_, outAddr := f.Mem.Alloc(4)
	in, inAddr := f.Mem.Alloc(4)
	q.SetDesc(head, vhosttest.Desc{Addr: outAddr, Len: 4, Flags: next, Next: uint16(head + 1)})
	q.SetDesc(head+1, vhosttest.Desc{Addr: inAddr, Len: 4, Flags: write})
	q.Offer(uint16(head))
	return in
}

func take(t *testing.T, q *Queue) *Chain {
	t.Helper()
	c := &Chain{}
	if ok, _, err := q.Take(c); !ok || err != nil {
		t.Fatalf("take: %v, %v", ok, err)
	}
	return c
}

func TestTakeAndReturn(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		h := newHolder(owner)
		f, _ := serve(t, h)
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Start(0)
		kick := <-h.watched
		first := offerOne(f, q, 0)
		offerOne(f, q, 2)
		var count [8]byte
		if n, err := unix.Read(kick, count[:]); n != 8 || count[0] != 2 {
			t.Errorf("kicks: %d, %v, %v", n, count, err)
		}
		one, two := &Chain{}, &Chain{}
		if ok, more, err := h.queue.Take(one); !ok || !more || err != nil {
			t.Fatal(ok, more, err)
		}
		if ok, more, err := h.queue.Take(two); !ok || more || err != nil {
			t.Fatal(ok, more, err)
		}
		one.In.CopyFrom([]byte("abcd"))
		// In reverse order.
		for i, c := range []*Chain{two, one} {
			if err := h.queue.Return(c, uint32(i+3)); err != nil {
				t.Fatal(err)
			}
			head, n, ok := q.Used()
			if !ok || head != c.Head || n != uint32(i+3) {
				t.Errorf("came back: %d, %d, %v", head, n, ok)
			}
		}
		if string(first) != "abcd" {
			t.Errorf("the driver has %q", first)
		}
	})
}

// A chain that is still taken when its queue stops is returned before the stop
// is answered, or when the queue resumes, or never if the driver has reset it.
func TestReturnAndStop(t *testing.T) {
	for name, test := range map[string]struct {
		base  uint16
		back  bool
		owner Owner
	}{
		"continued": {1, true, nil}, "reset": {0, false, nil},
		"continued, foreign": {1, true, self{}}, "reset, foreign": {0, false, self{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolder(test.owner)
			f, _ := serve(t, h)
			f.Handshake()
			q := f.NewQueue(0, 8)
			q.Start(0)
			offerOne(f, q, 0)
			c := take(t, h.queue)
			if base := q.Stop(); base != 1 {
				t.Fatalf("stopped at %d", base)
			}
			if !test.back {
				q.Reset()
			}
			if err := h.queue.Return(c, 4); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := q.Used(); ok {
				t.Fatal("a stopped queue gives chains back")
			}
			q.Start(test.base)
			if _, _, ok := q.Used(); ok != test.back {
				t.Errorf("came back: %v, want %v", ok, test.back)
			}
		})
	}
}

// A queue that resumes after 65536 chains, whose index is 0 again, has not been reset.
func TestReturnWhenIndexIsZeroAgain(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		h := newHolder(owner)
		f, _ := serve(t, h)
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Advance(0xfffe)
		q.Start(0xfffe)
		offerOne(f, q, 0)
		offerOne(f, q, 2)
		late, later := take(t, h.queue), take(t, h.queue)
		if base := q.Stop(); base != 0 {
			t.Fatalf("stopped at %d", base)
		}
		if err := h.queue.Return(late, 4); err != nil {
			t.Fatal(err)
		}
		q.Start(0)
		if err := h.queue.Return(later, 4); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Chain{late, later} {
			if head, _, ok := q.Used(); !ok || head != c.Head {
				t.Errorf("came back: %d, %v, want %d", head, ok, c.Head)
			}
		}
	})
}

func TestStopWaitsForReturn(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		h := newHolder(owner)
		f, _ := serve(t, h)
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Start(0)
		offerOne(f, q, 0)
		c := take(t, h.queue)
		go func() {
			for h.queue.Running() {
				time.Sleep(time.Millisecond)
			}
			_ = h.queue.Return(c, 4)
		}()
		q.Stop()
		if _, _, ok := q.Used(); !ok {
			t.Error("the chain was not back when the stop was answered")
		}
	})
}

// The memory of a taken chain stays mapped even when its table is gone.
func TestTakenMemoryStays(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		h := newHolder(owner)
		f, ended := serve(t, h)
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Start(0)
		offerOne(f, q, 0)
		c := take(t, h.queue)
		f.Close()
		if err := await(t, ended); err != nil {
			t.Fatal(err)
		}
		if err := Guard(func() error { c.In.CopyFrom([]byte("late")); return nil }); err != nil {
			t.Errorf("write after the end: %v", err)
		}
		mem := c.mem
		if err := h.queue.Return(c, 4); err != nil {
			t.Error(err)
		}
		if len(mem.segments) != 0 {
			t.Error("the memory is still mapped")
		}
	})
}

// An unmapped ring address stops a running queue; it does not run without
// rings.
func TestBadAddressOfRunningQueue(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		d := newReverser(owner)
		f, _ := serve(t, d)
		f.Handshake()
		q := f.NewQueue(0, 8)
		q.Start(0)
		if f.Set(vhosttest.SetVringAddr, append(vhosttest.State(0, 0), make([]byte, 32)...)) {
			t.Error("an address that is nowhere is taken")
		}
		err := d.queues[0].Do(func(r *Ring) error { r.Available(); return nil })
		if !errors.Is(err, ErrStopped) {
			t.Errorf("do: %v", err)
		}
	})
}
