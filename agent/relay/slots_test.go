package relay

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slotBed is a bed whose data goes through the slots of a file.
type slotBed struct {
	*bed
	slots Slots
	file  *os.File
	path  string
}

func newSlotBed(t *testing.T) *slotBed {
	t.Helper()
	b := &slotBed{bed: newBed(t, unix.SOCK_STREAM), path: filepath.Join(t.TempDir(), "slots")}
	b.slots = Slots{Count: 2, Size: 128 << 10, Header: 4, Data: 124 << 10, Kind: 7}
	var err error
	if b.file, err = os.Create(b.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.file.Close() })
	return b
}

// policy returns the scheduling policy of this thread (sched(7)).
func policy(t *testing.T) uint32 {
	t.Helper()
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr.Policy
}

// slotRun is what RunSlots returned.
type slotRun struct {
	run
	ok bool
}

func (b *slotBed) begin() <-chan slotRun {
	done := make(chan slotRun, 1)
	go func() {
		var r slotRun
		r.read, r.rest, r.ok, r.err = b.RunSlots(b.from, b.to.(*net.UnixConn), b.file, &b.slots)
		done <- r
	}()
	return done
}

// take reads the next slot as the host does, without freeing it.
func (b *slotBed) take(t *testing.T, n *int) []byte {
	t.Helper()
	var kind [1]byte
	if _, err := io.ReadFull(b.host, kind[:]); err != nil || kind[0] != 7 {
		t.Fatalf("byte %d, %v", kind[0], err)
	}
	at := int64(*n % b.slots.Count * b.slots.Size)
	*n++
	f, err := os.Open(b.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var length [4]byte
	if _, err := f.ReadAt(length[:], at); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := f.ReadAt(data, at+4); err != nil || len(data) == 0 || len(data) > b.slots.Data {
		t.Fatalf("a slot of %d bytes: %v", len(data), err)
	}
	return data
}

func endedSlots(t *testing.T, done <-chan slotRun) slotRun {
	t.Helper()
	select {
	case r := <-done:
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("the run does not end")
		return slotRun{}
	}
}

// All bytes arrive in their order, however the host frees slots.
func TestSlots(t *testing.T) {
	b := newSlotBed(t)
	data := pattern(3<<20 + 5)
	go func() {
		_, _ = b.process.Write(data)
		_ = b.process.Close()
	}()
	done := b.begin()
	var got []byte
	for n := 0; len(got) < len(data); {
		got = append(got, b.take(t, &n)...)
		if n%3 == 0 {
			time.Sleep(time.Millisecond)
		}
		if _, err := b.host.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	r := endedSlots(t, done)
	if !r.ok || r.read != uint64(len(data)) || len(r.rest) > 0 || !bytes.Equal(got, data) {
		t.Errorf("ok %v, %d bytes read, %d not sent, %d arrived", r.ok, r.read, len(r.rest), len(got))
	}
}

// Slots that the host does not free are not used again, and what does not fit stays in the
// pipe. The next run goes on where this one has stopped.
func TestSlotsAreNotOverwritten(t *testing.T) {
	b := newSlotBed(t)
	data := pattern(2*b.slots.Data + 1000)
	if _, err := unix.FcntlInt(b.process.Fd(), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		t.Skip(err)
	}
	if _, err := b.process.Write(data); err != nil {
		t.Fatal(err)
	}
	done := b.begin()
	n := 0
	got := append(b.take(t, &n), b.take(t, &n)...)
	select {
	case r := <-done:
		t.Fatalf("the run has ended: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	b.Stop()
	if r := endedSlots(t, done); !r.ok || r.read != uint64(len(got)) || len(r.rest) > 0 || b.slots.Used() != 2 {
		t.Fatalf("ok %v, %d bytes read, %d not sent, %d slots in use", r.ok, r.read, len(r.rest), b.slots.Used())
	}
	if _, err := b.host.Write([]byte{0, 0}); err != nil {
		t.Fatal(err)
	}
	next, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	next.Small, next.Pause, next.Idle = b.Small, b.Pause, 10*time.Millisecond
	b.Relay = next
	done = b.begin()
	got = append(got, b.take(t, &n)...)
	select {
	case r := <-done:
		t.Errorf("the run has ended before the host has freed the slot: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := b.host.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if r := endedSlots(t, done); !r.ok || len(r.rest) > 0 || b.slots.Used() > 0 || !bytes.Equal(got, data) {
		t.Errorf("ok %v, %d not sent, %d of %d bytes arrived", r.ok, len(r.rest), len(got), len(data))
	}
}

// A file that takes nothing loses nothing.
func TestSlotsWithoutRoom(t *testing.T) {
	b := newSlotBed(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.file.Close()
	b.file = full
	data := pattern(1000)
	if _, err := b.process.Write(data); err != nil {
		t.Fatal(err)
	}
	if r := endedSlots(t, b.begin()); r.ok || r.read != 1000 || !bytes.Equal(r.rest, data) {
		t.Errorf("ok %v, %d bytes read, %d not sent", r.ok, r.read, len(r.rest))
	}
}

// A host that goes away, or frees what is not in use, ends the run.
func TestSlotsOfAHostThat(t *testing.T) {
	for name, do := range map[string]func(*slotBed){
		"goes away":       func(b *slotBed) { _ = b.host.Close() },
		"frees too often": func(b *slotBed) { _, _ = b.host.Write([]byte{0}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newSlotBed(t)
			do(b)
			if _, err := b.process.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if r := endedSlots(t, b.begin()); r.read != 0 {
				t.Errorf("%d bytes were read", r.read)
			}
		})
	}
}

// While it copies, the thread does not interrupt the process that writes. Afterwards, it
// may run anything else of Go's.
func TestSlotsLeaveThePolicy(t *testing.T) {
	b := newSlotBed(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, thread := policy(t), unix.Gettid()
	during := make(chan uint32, 1)
	go func() {
		defer b.process.Close()
		_, _ = b.process.Write(pattern(b.slots.Data))
		var kind [1]byte
		_, _ = io.ReadFull(b.host, kind[:]) // The run has begun, and waits for more.
		attr, err := unix.SchedGetAttr(thread, 0)
		if err != nil {
			t.Error(err)
			attr = new(unix.SchedAttr)
		}
		during <- attr.Policy
		_, _ = b.host.Write([]byte{0})
	}()
	if _, _, ok, err := b.RunSlots(b.from, b.to.(*net.UnixConn), b.file, &b.slots); err != nil || !ok {
		t.Fatalf("the run: %v, %v", ok, err)
	}
	if got := <-during; got != unix.SCHED_BATCH {
		t.Errorf("policy %d while it copies, want %d", got, unix.SCHED_BATCH)
	}
	if got := policy(t); got != before {
		t.Errorf("policy %d afterwards, want %d", got, before)
	}
}
