package vhostuser

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// process is another process as an owner.
type process struct {
	pid    int
	reaped atomic.Bool
}

func (p *process) Hold() (int, bool) { return p.pid, !p.reaped.Load() }
func (p *process) Release()          {}

// startOwner starts a process that does nothing, until the test's end.
func startOwner(t testing.TB) *process {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{pid: cmd.Process.Pid}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// A front end whose process does not have the memory that it announces, has
// ended, or may not be accessed, breaks its own queues.
func TestOwnerLacksMemory(t *testing.T) {
	ended, init := startOwner(t), &process{pid: 1}
	ended.reaped.Store(true)
	for name, owner := range map[string]*process{"other addresses": startOwner(t), "reaped": ended, "another's": init} {
		t.Run(name, func(t *testing.T) {
			f, ended := serve(t, newReverser(owner))
			f.Handshake()
			q := f.NewQueue(0, 8)
			// The used index is read when the queue starts.
			if q.Starts(0) {
				t.Error("a queue without memory starts")
			}
			if err := await(t, ended); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "cannot be reached") {
				t.Errorf("serve: %v", err)
			}
		})
	}
}

// The memory table may name addresses at which the owner has no memory, or
// memory that it cannot write: only when they are used is that an error.
func TestForeignHoles(t *testing.T) {
	page, err := unix.Mmap(-1, 0, 3*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	if err := unix.Mprotect(page[4096:8192], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	mem := newMemory(foreign{self{}})
	whole := piece{segmentOf(page, 0), 0, uint64(len(page))}
	for name, touch := range map[string]func(b *Buffers){
		"read":  func(b *Buffers) { b.CopyTo(make([]byte, len(page))) },
		"write": func(b *Buffers) { b.CopyFrom(make([]byte, len(page))) },
	} {
		b := Buffers{mem, []piece{whole}}
		if err := guarded(func() error { touch(&b); return nil }); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	move := func(iov []unix.Iovec, _ int64) (int, unix.Errno) { return int(iov[0].Len), 0 }
	var s Scratch
	if n, errno := (Buffers{mem, []piece{whole}}).Fill(&s, 1<<20, move); n != 0 || errno != unix.EFAULT {
		t.Errorf("fill: %d, %v", n, errno)
	}
	if n, errno := (Buffers{mem, []piece{whole}}).Drain(&s, 1<<20, move); n != 0 || errno != unix.EFAULT {
		t.Errorf("drain: %d, %v", n, errno)
	}
	if n, errno := (Buffers{mem, []piece{whole.cut(0, 4096)}}).Drain(&s, 1<<20, move); n != 4096 || errno != 0 {
		t.Errorf("drain of a page: %d, %v", n, errno)
	}
}

// Files' data passes between a file and many pieces of any length, whatever the
// file takes or gives at once.
func TestFillAndDrain(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcde"), 70_000) // several times bounceLen
	for kind, how := range accesses {
		for name, limit := range map[string]int{"all": len(want), "short": 300_000, "none": 0} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				memory := make([]byte, len(want)+4096)
				whole, b := segmentOf(memory, 0), Buffers{mem: newMemory(how)}
				for at, i := 0, 0; at < len(memory); i++ {
					n := min(1+i*37%5000, len(memory)-at)
					p := piece{whole, uint64(at), uint64(n)}
					if i%4 == 0 {
						p = pieceOf(memory[at : at+n]) // adjoins the others, in another region
					}
					b.pieces = append(b.pieces, p)
					at += n
				}
				var s Scratch
				n, errno := b.Fill(&s, int64(len(want)), func(iov []unix.Iovec, done int64) (int, unix.Errno) {
					return scatter(iov, want[min(int(done), limit):limit]), 0
				})
				if n != limit || errno != 0 || !bytes.Equal(memory[:n], want[:n]) {
					t.Fatalf("filled %d of %d, %v", n, limit, errno)
				}
				var got []byte
				n, errno = b.Drain(&s, int64(limit), func(iov []unix.Iovec, done int64) (int, unix.Errno) {
					if int(done) != len(got) {
						t.Errorf("%d of %d are done", len(got), done)
					}
					before := len(got)
					for _, v := range iov {
						got = append(got, bytesOf(v)...)
					}
					return len(got) - before, 0
				})
				if n != limit || errno != 0 || !bytes.Equal(got, want[:limit]) {
					t.Errorf("drained %d of %d, %v", n, limit, errno)
				}
			})
		}
	}
}

// Pieces that adjoin in one region become one, in their order.
func TestJoined(t *testing.T) {
	a, b := new(segment), new(segment)
	pieces := []piece{{a, 0, 10}, {a, 10, 10}, {b, 20, 5}, {b, 25, 0}, {b, 25, 1}, {a, 26, 4}, {a, 20, 6}, {a, 20, 6}, {a, 26, 2}}
	want := []piece{{a, 0, 20}, {b, 20, 6}, {a, 26, 4}, {a, 20, 6}, {a, 20, 8}}
	before := slices.Clone(pieces)
	if got := joined(pieces); !slices.Equal(got, want) || !slices.Equal(pieces, before) {
		t.Errorf("got %v from %v, want %v", got, pieces, want)
	}
}

// An index in another process's memory is written as a whole: while a thread
// writes words of equal bytes, another one never sees a mixture. It checks the
// machine's processor and kernel (foreign).
func TestWordIsWhole(t *testing.T) {
	memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	used := piece{segmentOf(memory, 0), 0, 4 + 8*8}
	r := &Ring{mem: newMemory(foreign{self{}}), used: used, size: 8, knowsFirst: true}
	end := time.Now().Add(time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint16(0); time.Now().Before(end); n++ {
			// 0x00ff and 0x0100 differ in both bytes.
			r.published = 0xfe + n&1
			r.pushed = append(r.pushed[:0], usedElem{})
			r.mem.publish(r)
		}
	}()
	seen := map[uint16]int{}
	last := uint16(0)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for range 1000 {
			if idx := uint16(atomic.LoadUint32(word(memory)) >> 16); idx != last {
				seen[idx]++
				last = idx
			}
		}
	}
	t.Logf("saw %v", seen)
	for idx := range seen {
		if idx != 0 && idx != 0xff && idx != 0x100 {
			t.Errorf("saw the index %#x, which was never written", idx)
		}
	}
}

// What the driver reads at the first entry stays what the device wrote last,
// although it is written again with each index.
func TestFirstEntryStays(t *testing.T) {
	d := newReverser(self{})
	f, _ := serve(t, d)
	f.Handshake()
	q := f.NewQueue(0, 8)
	q.Start(0)
	for i := range 20 {
		roundTrip(t, f, q, strings.Repeat("x", i+1))
		if i == 3 { // the back end has to find out again
			q.Start(q.Stop())
		}
		if got := binary.LittleEndian.Uint32(q.UsedEntry(0)); got != 0 {
			t.Fatalf("after %d chains the first entry's head is %d", i+1, got)
		}
		if got, want := binary.LittleEndian.Uint32(q.UsedEntry(0)[4:]), uint32(i/8*8+1); got != want {
			t.Fatalf("after %d chains the first entry's length is %d, want %d", i+1, got, want)
		}
	}
}
