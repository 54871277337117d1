package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped is access to memory that is mapped here, shared with the front end. A
// missing page is a fault.
type mapped struct{}

var _ access = mapped{}

// mapMemory maps the regions of a table. The caller owns the descriptors.
func mapMemory(regions []region, fds []int) (*memory, error) {
	m := newMemory(mapped{})
	for i, r := range regions {
		if err := m.mapRegion(r, fds[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("map memory region %d: %w", i, err), m.close())
		}
	}
	return m, nil
}

func (m *memory) mapRegion(r region, fd int) error {
	if err := m.check(r); err != nil {
		return err
	}
	if err := checkFile(fd, r.offset+r.size); err != nil {
		return err
	}
	// QEMU has already reserved all huge pages; do not reserve them again here.
	data, err := unix.Mmap(fd, int64(r.offset), int(r.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map %d bytes at %#x: %w", r.size, r.offset, err)
	}
	m.segments = append(m.segments, &segment{r, data})
	return nil
}

// checkFile checks that the file has at least end bytes now. It may still
// shrink or lack pages: QEMU seals a memfd (memfd_create(2)) against shrinking,
// but a file in a directory cannot be sealed, a file system may be full, and
// the host's huge pages may run out. Then an access faults: see guarded.
func checkFile(fd int, end uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat memory file: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("memory file is not a regular file (mode %#o): %w", st.Mode, errMalformed)
	}
	if st.Size < 0 || end > uint64(st.Size) {
		return fmt.Errorf("region ends at %d of a memory file of %d bytes: %w", end, st.Size, errMalformed)
	}
	return nil
}

func (mapped) unmap(s *segment) error { return unix.Munmap(s.data) }

// bytes returns a piece's memory.
func (p piece) bytes() []byte { return p.in.data[p.off : p.off+p.len : p.off+p.len] }

func (mapped) read(p []byte, from []piece) {
	for _, f := range from {
		p = p[copy(p, f.bytes()):]
	}
}

func (mapped) write(to []piece, p []byte) {
	for _, t := range to {
		p = p[copy(t.bytes(), p):]
	}
}

func (mapped) view(p piece, _ *[]byte) []byte { return p.bytes() }

// word returns the flags and index at the start of a ring as one 32-bit word:
// Go has no 16-bit atomics. p is aligned and at least 4 bytes (locate).
func word(p []byte) *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(p)))
}

func (mapped) aligned(ring piece) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(ring.bytes())))%4 == 0
}

func (mapped) front(avail piece, slot uint64) (idx, head uint16) {
	p := avail.bytes()
	idx = uint16(atomic.LoadUint32(word(p)) >> 16)
	return idx, binary.LittleEndian.Uint16(p[ringHead+headLen*slot:])
}

func (mapped) usedIndex(used piece) uint16 {
	return uint16(atomic.LoadUint32(word(used.bytes())) >> 16)
}

func (mapped) publish(r *Ring) {
	p, i := r.used.bytes(), r.published
	for _, e := range r.pushed {
		at := ringHead + elemLen*int(i&(r.size-1))
		e.encode(p[at:at:len(p)])
		i++
	}
	atomic.StoreUint32(word(p), uint32(i)<<16)
}

// vector makes s.iov the first size bytes of the pieces, at most maxIovecs.
func (s *Scratch) vector(pieces []piece, size int64) []unix.Iovec {
	s.iov = s.iov[:0]
	for _, p := range pieces {
		if size <= 0 || len(s.iov) == maxIovecs {
			break
		}
		n := min(p.len, uint64(size))
		if n == 0 {
			continue
		}
		size -= int64(n)
		v := unix.Iovec{Base: &p.in.data[p.off]}
		v.SetLen(int(n))
		s.iov = append(s.iov, v)
	}
	return s.iov
}

// fill implements access: the kernel copies between file and guest memory, and
// a missing page is EFAULT.
func (mapped) fill(s *Scratch, to []piece, size int64, read IO) (int, unix.Errno) {
	iov := s.vector(to, size)
	if len(iov) == 0 {
		return 0, 0
	}
	return read(iov, 0)
}

func (m mapped) drain(s *Scratch, from []piece, size int64, write IO) (int, unix.Errno) {
	return m.fill(s, from, size, write)
}
