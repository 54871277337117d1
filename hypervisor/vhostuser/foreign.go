package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Owner is the process whose memory is the guest's, if the machine does not
// share it: only the process itself can map private memory.
type Owner interface {
	// Hold returns the process's id, which is no other process's until
	// Release; ok is false, and Release must not be called, if the process has
	// ended.
	Hold() (pid int, ok bool)
	Release()
}

// foreign is access to the memory of another process, by the system calls
// process_vm_readv(2) and process_vm_writev(2). The addresses are the front
// end's own (userAddr). It may lie about them: then they lead to other memory of
// the same process, or to none, which breaks the queue.
//
// Order. The processor executes the kernel's copies in this process's context:
// on x86 no load passes an earlier load and no store an earlier store, the
// kernel copies the pieces of one call in their order, and it takes and drops
// page references between them with locked instructions. So an index that is
// read in one piece is read before what it announces in the next, and an index
// that is written in the last piece becomes visible last.
//
// Whole words. The kernel may copy byte by byte. A torn available index does no
// harm: it differs from the last one only if the driver has already stored the
// new one, and front's caller takes one chain for each. A torn used index
// would: the driver would take entries that were not written. So the index is
// written with the six bytes beside it, eight aligned bytes, which the kernel's
// copy moves by one instruction (arch/x86/lib/copy_user_64.S): a MOVQ, or, on
// processors with FSRM, REP MOVSB. For the latter no manual promises this;
// TestWordIsWhole checks the processor that it runs on.
type foreign struct{ owner Owner }

var _ access = foreign{}

// lost is what foreign's methods panic with.
type lost struct{ err error }

// foreignMemory makes a table of another process's memory. Nothing is mapped.
func foreignMemory(regions []region, owner Owner) (*memory, error) {
	m := newMemory(foreign{owner})
	for i, r := range regions {
		if err := m.check(r); err != nil {
			return nil, fmt.Errorf("memory region %d: %w", i, err)
		}
		m.segments = append(m.segments, &segment{region: r})
	}
	return m, nil
}

func (foreign) unmap(*segment) error { return nil }

// batch is how many pieces one call moves, at most.
const batch = 128

// direction is which of the two system calls is made.
type direction bool

const (
	reading direction = false
	writing direction = true
)

// move moves len(p) bytes between p and the pieces.
func (f foreign) move(to direction, p []byte, pieces []piece) error {
	var remote [batch]unix.RemoteIovec
	for len(p) > 0 {
		n, total := 0, 0
		for len(pieces) > 0 && n < batch && total < len(p) {
			k := int(min(pieces[0].len, uint64(len(p)-total)))
			if k > 0 {
				remote[n] = unix.RemoteIovec{Base: uintptr(pieces[0].in.userAddr + pieces[0].off), Len: k}
				n++
			}
			total += k
			pieces = pieces[1:]
		}
		if total == 0 {
			return nil // the pieces have no more
		}
		if err := f.call(to, p[:total], remote[:n]); err != nil {
			return err
		}
		p = p[total:]
	}
	return nil
}

// errShort means that the process lacks the end of the memory.
var errShort = errors.New("memory ends early")

func (f foreign) call(to direction, p []byte, remote []unix.RemoteIovec) error {
	pid, ok := f.owner.Hold()
	if !ok {
		return unix.ESRCH
	}
	defer f.owner.Release()
	local := [1]unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	var n int
	var err error
	if to == writing {
		n, err = unix.ProcessVMWritev(pid, local[:], remote, 0)
	} else {
		n, err = unix.ProcessVMReadv(pid, local[:], remote, 0)
	}
	if err == nil && n != len(p) {
		err = errShort
	}
	return err
}

func (f foreign) read(p []byte, from []piece) {
	if err := f.move(reading, p, from); err != nil {
		panic(lost{err}) //nolint:forbidigo // a fault, as with mapped memory: guarded recovers it
	}
}

func (f foreign) write(to []piece, p []byte) {
	if err := f.move(writing, p, to); err != nil {
		panic(lost{err}) //nolint:forbidigo // see read
	}
}

func (f foreign) view(p piece, buf *[]byte) []byte {
	if uint64(cap(*buf)) < p.len {
		*buf = make([]byte, p.len)
	}
	b := (*buf)[:p.len]
	f.read(b, []piece{p})
	return b
}

// wordLen is how many bytes are written with the used index: see foreign.
const wordLen = 8

func (foreign) aligned(ring piece) bool {
	return (ring.in.userAddr+ring.off)%wordLen == 0 && ring.len >= wordLen
}

func (f foreign) front(avail piece, slot uint64) (idx, head uint16) {
	var b [ringHead + headLen]byte
	f.read(b[:], []piece{avail.cut(0, ringHead), avail.cut(ringHead+headLen*slot, headLen)})
	return binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint16(b[ringHead:])
}

func (f foreign) usedIndex(used piece) uint16 {
	var b [wordLen]byte
	f.read(b[:], []piece{used.cut(0, wordLen)})
	return binary.LittleEndian.Uint16(b[2:])
}

// publish implements access, with one call: the entries, at the ring's end in
// two pieces, and then the word with the index. Behind the index that word has
// the first entry's head, which only the device writes.
func (f foreign) publish(r *Ring) {
	if !r.knowsFirst {
		f.read(r.first[:], []piece{r.used.cut(ringHead, uint64(len(r.first)))})
		r.knowsFirst = true
	}
	buf := r.scratch[:0]
	for _, e := range r.pushed {
		buf = e.encode(buf)
	}
	n, start := uint64(len(r.pushed)), uint64(r.published&(r.size-1))
	before := min(n, uint64(r.size)-start) // entries up to the ring's end
	if start == 0 {
		copy(r.first[:], buf)
	} else if before < n {
		copy(r.first[:], buf[before*elemLen:])
	}
	buf = binary.LittleEndian.AppendUint16(buf, 0)
	buf = binary.LittleEndian.AppendUint16(buf, r.published+uint16(n))
	buf = append(buf, r.first[:]...)
	r.scratch = buf
	f.write([]piece{
		r.used.cut(ringHead+elemLen*start, elemLen*before),
		r.used.cut(ringHead, elemLen*(n-before)),
		r.used.cut(0, wordLen),
	}, buf)
}

// bounceLen is how much of a file is moved at a time. It stays in the CPU's
// cache between the two copies.
const bounceLen = 256 << 10

func (s *Scratch) buffer(n int64) []byte {
	n = min(n, bounceLen)
	if int64(cap(s.bounce)) < n {
		s.bounce = make([]byte, n)
	}
	return s.bounce[:n]
}

// fill implements access, with a copy by way of s. A missing page is EFAULT.
func (f foreign) fill(s *Scratch, to []piece, size int64, read IO) (int, unix.Errno) {
	return f.pass(s, to, size, func(part Buffers, p []byte, done int64) (int, unix.Errno) {
		n, errno := read(s.one(p), done)
		if errno == 0 && f.move(writing, p[:n], part.pieces) != nil {
			return 0, unix.EFAULT
		}
		return n, errno
	})
}

func (f foreign) drain(s *Scratch, from []piece, size int64, write IO) (int, unix.Errno) {
	return f.pass(s, from, size, func(part Buffers, p []byte, done int64) (int, unix.Errno) {
		if f.move(reading, p, part.pieces) != nil {
			return 0, unix.EFAULT
		}
		return write(s.one(p), done)
	})
}

// pass calls move with a buffer for each part of the pieces, until it moves
// less than the whole buffer.
func (f foreign) pass(s *Scratch, pieces []piece, size int64, move func(part Buffers, p []byte, done int64) (int, unix.Errno)) (int, unix.Errno) {
	rest := Buffers{pieces: joined(pieces)}
	size = min(size, int64(min(rest.Len(), 1<<62)))
	done := int64(0)
	for done < size {
		p := s.buffer(size - done)
		n, errno := move(rest, p, done)
		if errno != 0 && done == 0 {
			return 0, errno
		}
		done += int64(n)
		if errno != 0 || n < len(p) {
			break
		}
		rest.Drop(n)
	}
	return int(done), 0
}

// joined returns the pieces, and makes one piece of those that adjoin: a guest
// names its pages one by one, and each piece costs the kernel a look at the page
// tables. Not for rings, where each piece is copied after the one before it.
func joined(pieces []piece) []piece {
	all := make([]piece, 0, len(pieces))
	for _, p := range pieces {
		if last := len(all) - 1; last >= 0 && all[last].in == p.in && all[last].off+all[last].len == p.off {
			all[last].len += p.len
			continue
		}
		all = append(all, p)
	}
	return all
}

// one makes s.iov one buffer.
func (s *Scratch) one(p []byte) []unix.Iovec {
	v := unix.Iovec{Base: &p[0]}
	v.SetLen(len(p))
	s.iov = append(s.iov[:0], v)
	return s.iov
}
