package vhostuser

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Descriptor flags (virtio 1.2, section 2.7.5).
const (
	descNext     = 1
	descWrite    = 2
	descIndirect = 4
	descLen      = 16
)

// Ring is a running queue's ring. It is valid only within Queue.Do.
type Ring struct {
	mem               *memory
	desc, avail, used []byte
	size              uint16

	lastAvail uint16 // next entry of the available ring to take
	usedIdx   uint16 // next entry of the used ring to fill
	published uint16 // usedIdx as last published to the driver
}

// aligned reports whether a word at p's start can be accessed atomically.
func aligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%4 == 0
}

// word returns the flags and index at the start of a ring as one 32-bit word:
// Go has no 16-bit atomics. p is aligned and at least 4 bytes (locate).
func word(p []byte) *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(p)))
}

func (r *Ring) loadAvailIdx() uint16 { return uint16(atomic.LoadUint32(word(r.avail)) >> 16) }

func (r *Ring) loadUsedIdx() uint16 { return uint16(atomic.LoadUint32(word(r.used)) >> 16) }

// publish makes the pushed chains visible, and reports whether there were any.
// The flags beside the index stay 0, so that the driver always notifies.
func (r *Ring) publish() bool {
	if r.published == r.usedIdx {
		return false
	}
	atomic.StoreUint32(word(r.used), uint32(r.usedIdx)<<16)
	r.published = r.usedIdx
	return true
}

// Available reports whether Pop would find a chain.
func (r *Ring) Available() bool {
	return r.loadAvailIdx() != r.lastAvail
}

// Pop takes the next chain that the driver made available into c, which is
// reused. It returns false if there is none. An error wraps ErrBroken.
func (r *Ring) Pop(c *Chain) (bool, error) {
	ready := r.loadAvailIdx() - r.lastAvail
	if ready == 0 {
		return false, nil
	}
	if ready > r.size {
		return false, fmt.Errorf("%d chains available in a ring of %d: %w", ready, r.size, ErrBroken)
	}
	slot := int(r.lastAvail & (r.size - 1))
	head := binary.LittleEndian.Uint16(r.avail[4+2*slot:])
	c.reset(head)
	if err := r.walk(head, c); err != nil {
		return false, err
	}
	c.seal()
	r.lastAvail++
	return true, nil
}

// Push returns a chain to the driver, with the number of bytes written to its
// In. The driver sees it when Do returns.
func (r *Ring) Push(head uint16, written uint32) {
	elem := r.used[4+8*int(r.usedIdx&(r.size-1)):]
	binary.LittleEndian.PutUint32(elem[0:], uint32(head))
	binary.LittleEndian.PutUint32(elem[4:], written)
	r.usedIdx++
}

// descriptor is a copy, because the guest may change the original meanwhile.
type descriptor struct {
	addr        uint64
	len         uint32
	flags, next uint16
}

func readDescriptor(table []byte, i uint16) descriptor {
	var d [descLen]byte
	copy(d[:], table[int(i)*descLen:])
	return descriptor{
		addr:  binary.LittleEndian.Uint64(d[0:]),
		len:   binary.LittleEndian.Uint32(d[8:]),
		flags: binary.LittleEndian.Uint16(d[12:]),
		next:  binary.LittleEndian.Uint16(d[14:]),
	}
}

// walk collects the pieces of a chain. It takes at most size steps, one per
// descriptor, the most a driver may chain (virtio 1.2, section 2.7.5.3.1).
func (r *Ring) walk(head uint16, c *Chain) error {
	table, n, i := r.desc, r.size, head
	indirect := false
	for range int(r.size) + 1 {
		if i >= n {
			return fmt.Errorf("descriptor %d of %d: %w", i, n, ErrBroken)
		}
		d := readDescriptor(table, i)
		if d.flags&descIndirect != 0 {
			if indirect || d.flags&descNext != 0 {
				return fmt.Errorf("indirect descriptor with flags %#x: %w", d.flags, ErrBroken)
			}
			var err error
			if table, n, err = r.indirectTable(d); err != nil {
				return err
			}
			indirect, i = true, 0
			continue
		}
		if err := r.collect(d, c); err != nil {
			return err
		}
		if d.flags&descNext == 0 {
			return nil
		}
		i = d.next
	}
	return fmt.Errorf("chain of more than %d descriptors: %w", r.size, ErrBroken)
}

func (r *Ring) indirectTable(d descriptor) ([]byte, uint16, error) {
	if d.len == 0 || d.len%descLen != 0 || d.len/descLen > uint32(r.size) {
		return nil, 0, fmt.Errorf("indirect table of %d bytes: %w", d.len, ErrBroken)
	}
	table := r.mem.guest(d.addr, uint64(d.len))
	if len(table) != int(d.len) {
		return nil, 0, fmt.Errorf("indirect table at %#x is not in memory: %w", d.addr, ErrBroken)
	}
	return table, uint16(d.len / descLen), nil
}

// collect adds a descriptor's memory to the chain; a buffer may cross from one
// region of memory to the next.
func (r *Ring) collect(d descriptor, c *Chain) error {
	to := &c.out
	if d.flags&descWrite != 0 {
		to = &c.in
	} else if len(c.in) > 0 {
		return fmt.Errorf("readable descriptor after a writable one: %w", ErrBroken)
	}
	addr, left := d.addr, uint64(d.len)
	if addr+left < addr {
		return fmt.Errorf("buffer of %d bytes at %#x: %w", left, addr, ErrBroken)
	}
	for left > 0 {
		piece := r.mem.guest(addr, left)
		if len(piece) == 0 {
			return fmt.Errorf("buffer at %#x is not in memory: %w", addr, ErrBroken)
		}
		*to = append(*to, piece)
		addr += uint64(len(piece))
		left -= uint64(len(piece))
	}
	return nil
}
