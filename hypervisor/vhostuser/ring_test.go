package vhostuser

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

const (
	ringSize = 8
	// Two adjacent regions of guest memory, and a gap.
	lowAddr, highAddr = 0x10000, 0x11000
	regionSize        = 0x1000
	tableAddr         = 0x11800 // for indirect tables
)

// self is this process as the owner of guest memory.
type self struct{}

func (self) Hold() (int, bool) { return os.Getpid(), true }
func (self) Release()          {}

// accesses are the ways to reach guest memory, here this process's own.
var accesses = map[string]access{"mapped": mapped{}, "foreign": foreign{self{}}}

// segmentOf makes memory a region at an address of the guest.
func segmentOf(data []byte, guestAddr uint64) *segment {
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	return &segment{region{guestAddr: guestAddr, size: uint64(len(data)), userAddr: addr}, data}
}

func pieceOf(data []byte) piece { return piece{segmentOf(data, 0), 0, uint64(len(data))} }

// newRing makes a ring outside of guest memory, over two regions of it.
func newRing(how access) *Ring {
	mem := newMemory(how)
	for _, addr := range []uint64{lowAddr, highAddr} {
		mem.segments = append(mem.segments, segmentOf(make([]byte, regionSize), addr))
	}
	return &Ring{
		mem: mem, size: ringSize,
		desc:  pieceOf(make([]byte, 16*ringSize)),
		avail: pieceOf(make([]byte, 64)),
		used:  pieceOf(make([]byte, 128)),
	}
}

func (r *Ring) setDescs(table []byte, descs []vhosttest.Desc) {
	for i, d := range descs {
		copy(table[16*i:], d.Encode())
	}
}

func (r *Ring) offer(head uint16) {
	avail := r.avail.bytes()
	idx := binary.LittleEndian.Uint16(avail[2:])
	binary.LittleEndian.PutUint16(avail[4+2*(idx%ringSize):], head)
	binary.LittleEndian.PutUint16(avail[2:], idx+1)
}

func lens(b Buffers) (n []int) {
	for _, p := range b.pieces {
		n = append(n, int(p.len))
	}
	return n
}

const (
	next     = vhosttest.Next
	write    = vhosttest.Write
	indirect = vhosttest.Indirect
)

func desc(addr uint64, n uint32, flags, next uint16) vhosttest.Desc {
	return vhosttest.Desc{Addr: addr, Len: n, Flags: flags, Next: next}
}

func TestPop(t *testing.T) {
	type descs = []vhosttest.Desc
	for _, tc := range []struct {
		name     string
		direct   descs
		indirect descs
		head     uint16
		out, in  []int
		wrong    string
	}{
		{name: "out and in", direct: descs{desc(lowAddr, 44, next, 1), desc(lowAddr+64, 100, write, 0)}, out: []int{44}, in: []int{100}},
		{name: "head elsewhere", direct: descs{5: desc(lowAddr, 7, 0, 9)}, head: 5, out: []int{7}},
		{name: "empty descriptor", direct: descs{desc(lowAddr, 0, next, 1), desc(lowAddr, 5, 0, 0)}, out: []int{5}},
		{name: "crosses regions", direct: descs{desc(highAddr-10, 30, 0, 0)}, out: []int{10, 20}},
		{name: "all of memory", direct: descs{desc(lowAddr, 2*regionSize, write, 0)}, in: []int{regionSize, regionSize}},
		{name: "indirect", direct: descs{desc(tableAddr, 32, indirect, 0)}, indirect: descs{desc(lowAddr, 3, next, 1), desc(lowAddr, 4, write, 0)}, out: []int{3}, in: []int{4}},
		{name: "direct, then indirect", direct: descs{desc(lowAddr, 9, next, 1), desc(tableAddr, 16, indirect, 0)}, indirect: descs{desc(lowAddr, 3, 0, 0)}, out: []int{9, 3}},
		{name: "as long as the queue", direct: descs{desc(tableAddr, 16*ringSize, indirect, 0)}, indirect: chainOf(ringSize), out: []int{1, 1, 1, 1, 1, 1, 1, 1}},

		{name: "loop", direct: descs{desc(lowAddr, 1, next, 0)}, wrong: "chain of more than"},
		{name: "head out of range", head: ringSize, wrong: "descriptor 8 of 8"},
		{name: "next out of range", direct: descs{desc(lowAddr, 1, next, 65535)}, wrong: "descriptor 65535"},
		{name: "next beyond the indirect table", direct: descs{desc(tableAddr, 16, indirect, 0)}, indirect: descs{desc(lowAddr, 1, next, 1)}, wrong: "descriptor 1 of 1"},
		{name: "readable after writable", direct: descs{desc(lowAddr, 1, write|next, 1), desc(lowAddr, 1, 0, 0)}, wrong: "readable"},
		{name: "nested indirect", direct: descs{desc(tableAddr, 16, indirect, 0)}, indirect: descs{desc(tableAddr, 16, indirect, 0)}, wrong: "indirect descriptor with flags"},
		{name: "indirect with next", direct: descs{desc(tableAddr, 16, indirect|next, 1)}, wrong: "indirect descriptor with flags"},
		{name: "indirect table of odd length", direct: descs{desc(tableAddr, 17, indirect, 0)}, wrong: "indirect table of 17"},
		{name: "empty indirect table", direct: descs{desc(tableAddr, 0, indirect, 0)}, wrong: "indirect table of 0"},
		{name: "huge indirect table", direct: descs{desc(tableAddr, 1<<20, indirect, 0)}, wrong: "indirect table of 1048576"},
		{name: "indirect table across regions", direct: descs{desc(highAddr-16, 32, indirect, 0)}, wrong: "not in memory"},
		{name: "below memory", direct: descs{desc(lowAddr-1, 2, 0, 0)}, wrong: "not in memory"},
		{name: "beyond memory", direct: descs{desc(highAddr+regionSize-1, 2, 0, 0)}, wrong: "not in memory"},
		{name: "address wraps", direct: descs{desc(^uint64(0), 2, 0, 0)}, wrong: "buffer of 2 bytes"},
		{name: "length of 4 GiB", direct: descs{desc(lowAddr, ^uint32(0), 0, 0)}, wrong: "not in memory"},
	} {
		each(t, tc.name, func(t *testing.T, how access) {
			r := newRing(how)
			r.setDescs(r.desc.bytes(), tc.direct)
			r.setDescs(r.mem.guest(tableAddr, 16*ringSize).bytes(), tc.indirect)
			r.offer(tc.head)
			var c Chain
			ok, err := r.Pop(&c)
			if tc.wrong != "" {
				if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), tc.wrong) {
					t.Fatalf("error %v, want ErrBroken with %q", err, tc.wrong)
				}
				return
			}
			if !ok || err != nil {
				t.Fatalf("pop: %v, %v", ok, err)
			}
			if diff := cmp.Diff([2][]int{tc.out, tc.in}, [2][]int{lens(c.Out), lens(c.In)}); diff != "" {
				t.Error("pieces (-want +got):", diff)
			}
			if ok, err := r.Pop(&c); ok || err != nil {
				t.Errorf("second pop: %v, %v", ok, err)
			}
		})
	}
}

// each runs a test with each access to memory.
func each(t *testing.T, name string, test func(t *testing.T, how access)) {
	t.Helper()
	for kind, how := range accesses {
		t.Run(name+"/"+kind, func(t *testing.T) { test(t, how) })
	}
}

// chainOf makes a chain of n descriptors of one byte.
func chainOf(n int) (d []vhosttest.Desc) {
	for i := range n {
		d = append(d, vhosttest.Desc{Addr: lowAddr, Len: 1, Flags: next, Next: uint16(i + 1)})
	}
	d[n-1].Flags = 0
	return d
}

func TestPopTooManyAvailable(t *testing.T) {
	each(t, "ring", func(t *testing.T, how access) {
		r := newRing(how)
		binary.LittleEndian.PutUint16(r.avail.bytes()[2:], ringSize+1)
		if _, err := r.Pop(&Chain{}); !errors.Is(err, ErrBroken) {
			t.Errorf("got %v, want ErrBroken", err)
		}
		if !r.Available() {
			t.Error("nothing is available, and so the error is not noticed")
		}
	})
}

// TestRingWraps moves the indexes beyond the end of the ring and of 16 bits, by
// one chain and by several, once by more than the ring has room for.
func TestRingWraps(t *testing.T) {
	each(t, "ring", func(t *testing.T, how access) {
		r := newRing(how)
		r.setDescs(r.desc.bytes(), chainOf(1))
		r.lastAvail, r.published = 65530, 65530
		binary.LittleEndian.PutUint16(r.avail.bytes()[2:], 65530)
		written := uint32(0)
		for _, n := range []int{1, 3, 1, 8, 7, 20} {
			for range n {
				r.offer(0)
				var c Chain
				if ok, err := r.Pop(&c); !ok || err != nil {
					t.Fatalf("pop: %v, %v", ok, err)
				}
				written++
				r.Push(c.Head, written)
			}
			if !r.publish() || r.publish() {
				t.Error("publish must tell of new chains once")
			}
			if got, want := how.usedIndex(r.used), uint16(65530+written); got != want {
				t.Fatalf("used index %d, want %d", got, want)
			}
			for i := written; i > 0 && written-i < ringSize; i-- {
				at := 4 + 8*int(uint16(65529+i)%ringSize)
				if got := binary.LittleEndian.Uint32(r.used.bytes()[at+4:]); got != i {
					t.Fatalf("entry %d has %d", i, got)
				}
			}
		}
	})
}

func TestBuffersCopy(t *testing.T) {
	each(t, "buffers", func(t *testing.T, how access) {
		b := Plain([]byte("ab"), nil, []byte("cdef"), []byte("g"))
		for i, p := range b.pieces {
			b.pieces[i] = pieceOf(p.in.data)
		}
		b.mem = newMemory(how)
		p := make([]byte, 4)
		if n := b.CopyTo(p); n != 4 || string(p) != "abcd" || b.Len() != 3 {
			t.Errorf("copied %d: %q, %d left", n, p, b.Len())
		}
		if n := b.CopyFrom([]byte("XY")); n != 2 || b.Len() != 1 {
			t.Errorf("wrote %d, %d left", n, b.Len())
		}
		if n := b.CopyTo(p); n != 1 || p[0] != 'g' || b.Len() != 0 {
			t.Errorf("copied %d: %q, %d left", n, p, b.Len())
		}
		if n := b.CopyFrom(p); n != 0 {
			t.Errorf("wrote %d beyond the end", n)
		}
	})
}

// FuzzPop walks arbitrary rings: every walk ends, within the queue's length,
// and returns only guest memory, readable pieces before writable ones.
func FuzzPop(f *testing.F) {
	seed := make([]byte, 16*ringSize)
	copy(seed, vhosttest.Desc{Addr: lowAddr, Len: 44, Flags: next, Next: 1}.Encode())
	copy(seed[16:], vhosttest.Desc{Addr: tableAddr, Len: 64, Flags: indirect}.Encode())
	f.Add(seed, seed, uint16(1), uint16(0))
	f.Fuzz(func(t *testing.T, descs, table []byte, availIdx, head uint16) {
		for _, how := range accesses {
			popAll(t, how, descs, table, availIdx, head)
		}
	})
}

func popAll(t *testing.T, how access, descs, table []byte, availIdx, head uint16) {
	r := newRing(how)
	copy(r.desc.bytes(), descs)
	copy(r.mem.guest(tableAddr, 16*ringSize).bytes(), table)
	binary.LittleEndian.PutUint16(r.avail.bytes()[2:], availIdx)
	for i := range ringSize {
		binary.LittleEndian.PutUint16(r.avail.bytes()[4+2*i:], head+uint16(i))
	}
	var c Chain
	for popped := 0; ; popped++ {
		ok, err := r.Pop(&c)
		if !ok {
			if err != nil && !errors.Is(err, ErrBroken) {
				t.Fatal(err)
			}
			return
		}
		if popped == ringSize {
			t.Fatal("more chains than the ring has")
		}
		// A descriptor has at most one piece per region.
		pieces := slices.Concat(c.Out.pieces, c.In.pieces)
		if len(pieces) > 2*ringSize || c.Out.Len()+c.In.Len() > ringSize*2*regionSize {
			t.Fatalf("chain of %d pieces", len(pieces))
		}
		for _, p := range pieces {
			if p.len == 0 || p.off+p.len > regionSize {
				t.Fatalf("piece of %d bytes at %d", p.len, p.off)
			}
		}
		r.Push(c.Head, 0)
	}
}
