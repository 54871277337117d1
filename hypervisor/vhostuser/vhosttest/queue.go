package vhosttest

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptor flags (virtio 1.2, section 2.7.5).
const (
	Next     = 1
	Write    = 2
	Indirect = 4
)

// Desc is one descriptor.
type Desc struct {
	Addr        uint64
	Len         uint32
	Flags, Next uint16
}

// Encode returns its 16 bytes.
func (d Desc) Encode() []byte {
	le := binary.LittleEndian
	p := le.AppendUint64(nil, d.Addr)
	p = le.AppendUint32(p, d.Len)
	p = le.AppendUint16(p, d.Flags)
	return le.AppendUint16(p, d.Next)
}

// Queue is the driver's side of a virtqueue. Its methods are for one goroutine
// at a time; Wait may be called by another one.
type Queue struct {
	Index, Size int

	f                 *FrontEnd
	mem               *Memory
	desc, avail, used []byte
	addrs             [3]uint64
	kick, call        *os.File
	availIdx, usedIdx uint16
}

// NewQueue makes a queue in the guest's memory; the back end does not know it yet.
func (f *FrontEnd) NewQueue(index, size int) *Queue {
	f.t.Helper()
	q := &Queue{f: f, mem: f.Mem, Index: index, Size: size}
	q.desc, q.addrs[0] = f.Mem.Alloc(16 * size)
	q.avail, q.addrs[1] = f.Mem.Alloc(4 + 2*size)
	q.used, q.addrs[2] = f.Mem.Alloc(4 + 8*size)
	q.kick, q.call = f.eventfd(), f.eventfd()
	return q
}

func (f *FrontEnd) eventfd() *os.File {
	f.t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		f.t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "eventfd")
	f.t.Cleanup(func() { _ = file.Close() })
	return file
}

// Start gives the queue to the back end, from entry base on, and enables it.
func (q *Queue) Start(base uint16) {
	q.f.t.Helper()
	q.set(base)
	q.f.must(SetVringKick, U64(uint64(q.Index)), fileFD(q.kick))
	q.f.must(SetVringEnable, State(uint32(q.Index), 1))
}

// set makes the requests that do not start the queue.
func (q *Queue) set(base uint16) {
	q.f.t.Helper()
	i := uint32(q.Index)
	addr := State(i, 0)
	for _, a := range []uint64{q.addrs[0], q.addrs[2], q.addrs[1]} {
		addr = append(addr, U64(q.mem.user(a))...)
	}
	addr = append(addr, U64(0)...)
	q.f.must(SetVringNum, State(i, uint32(q.Size)))
	q.f.must(SetVringBase, State(i, uint32(base)))
	q.f.must(SetVringAddr, addr)
	q.f.must(SetVringCall, U64(uint64(i)), fileFD(q.call))
}

// Starts is Start for a queue that the back end may refuse to run.
func (q *Queue) Starts(base uint16) bool {
	q.f.t.Helper()
	q.set(base)
	return q.f.Set(SetVringKick, U64(uint64(q.Index)), fileFD(q.kick)) && q.f.Set(SetVringEnable, State(uint32(q.Index), 1))
}

// UsedEntry returns an entry of the used ring.
func (q *Queue) UsedEntry(slot int) []byte { return q.used[4+8*slot:][:8] }

// Stop stops the queue and returns the next available entry.
func (q *Queue) Stop() uint16 {
	q.f.t.Helper()
	return binary.LittleEndian.Uint16(q.f.Get(GetVringBase, State(uint32(q.Index), 0))[4:])
}

// Reset clears the rings, as a driver's reset does.
func (q *Queue) Reset() {
	clear(q.avail)
	clear(q.used)
	q.availIdx, q.usedIdx = 0, 0
}

// Advance sets the rings' indexes, as after that many chains that were returned.
func (q *Queue) Advance(n uint16) {
	q.availIdx, q.usedIdx = n, n
	q.SetAvailIdx(n)
	atomic.StoreUint32(word(q.used), uint32(n)<<16)
}

// fileFD returns a file's descriptor without making it blocking.
func fileFD(f *os.File) int {
	fd := -1
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(v uintptr) { fd = int(v) })
	}
	return fd
}

// SetDesc writes a descriptor.
func (q *Queue) SetDesc(i int, d Desc) { copy(q.desc[16*i:], d.Encode()) }

// SetDescLen changes a descriptor's length only.
func (q *Queue) SetDescLen(i int, n uint32) { binary.LittleEndian.PutUint32(q.desc[16*i+8:], n) }

// Offer makes chains available and notifies the back end.
func (q *Queue) Offer(heads ...uint16) {
	for _, head := range heads {
		binary.LittleEndian.PutUint16(q.avail[4+2*(int(q.availIdx)%q.Size):], head)
		q.availIdx++
	}
	q.SetAvailIdx(q.availIdx)
	q.Kick()
}

// SetAvailIdx publishes an index, whatever is in the ring before it.
func (q *Queue) SetAvailIdx(i uint16) { atomic.StoreUint32(word(q.avail), uint32(i)<<16) }

// Kick notifies the back end.
func (q *Queue) Kick() { _, _ = q.kick.Write(U64(1)) }

// Used takes the next chain that the back end returned.
func (q *Queue) Used() (head uint16, n uint32, ok bool) {
	if uint16(atomic.LoadUint32(word(q.used))>>16) == q.usedIdx {
		return 0, 0, false
	}
	elem := q.used[4+8*(int(q.usedIdx)%q.Size):]
	q.usedIdx++
	return uint16(binary.LittleEndian.Uint32(elem)), binary.LittleEndian.Uint32(elem[4:]), true
}

// Wait waits for an interrupt. It returns false after d (0 is no limit), or
// after CloseCall.
func (q *Queue) Wait(d time.Duration) bool {
	if d > 0 {
		_ = q.call.SetReadDeadline(time.Now().Add(d))
	}
	_, err := q.call.Read(make([]byte, 8))
	return err == nil
}

// CloseCall ends a Wait.
func (q *Queue) CloseCall() { _ = q.call.Close() }

// BlockKick makes the kick's eventfd blocking, as only a hostile front end does.
func (q *Queue) BlockKick() { q.block(q.kick) }

// BlockCall does so with the call's, and fills its counter: a write to it waits.
func (q *Queue) BlockCall() {
	q.f.t.Helper()
	fd := fileFD(q.call)
	_, _ = unix.Read(fd, make([]byte, 8)) // there may be nothing
	if _, err := unix.Write(fd, U64(1<<64-2)); err != nil {
		q.f.t.Fatal(err)
	}
	q.block(q.call)
}

func (q *Queue) block(f *os.File) {
	q.f.t.Helper()
	if err := unix.SetNonblock(fileFD(f), false); err != nil {
		q.f.t.Fatal(err)
	}
}

// word returns the flags and index of a ring.
func word(p []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(p))) }
