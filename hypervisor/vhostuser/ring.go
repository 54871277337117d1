package vhostuser

import (
	"encoding/binary"
	"fmt"
)

// Descriptor flags (virtio 1.2, section 2.7.5).
const (
	descNext     = 1
	descWrite    = 2
	descIndirect = 4
	descLen      = 16
)

// Sizes in the available and the used ring, in bytes: flags and index before
// the entries, an entry of each.
const (
	ringHead = 4
	headLen  = 2
	elemLen  = 8
)

// Ring is a running queue's ring. It is valid only within Queue.Do.
type Ring struct {
	mem               *memory
	desc, avail, used piece
	size              uint16

	lastAvail uint16     // next entry of the available ring to take
	published uint16     // the used ring's index
	pushed    []usedElem // what follows there, not published yet

	table   []byte // a copy of descriptors, if they are not mapped
	scratch []byte // for publish
	// first is the first entry's head in the used ring, if knowsFirst.
	first      [4]byte
	knowsFirst bool
}

// publish makes the pushed chains visible, and reports whether there were any.
// The flags beside the index stay 0, so that the driver always notifies.
func (r *Ring) publish() bool {
	if len(r.pushed) == 0 {
		return false
	}
	// A driver that adds chains meanwhile may get more of them back at once
	// than its ring has room for.
	all := r.pushed
	for rest := all; len(rest) > 0; rest = rest[len(r.pushed):] {
		r.pushed = rest[:min(len(rest), int(r.size))]
		r.mem.publish(r)
		r.published += uint16(len(r.pushed))
	}
	r.pushed = all[:0]
	return true
}

// frontTries is how often a malformed available index is read. It may have been
// read while the driver wrote it, as two bytes (foreign).
const frontTries = 3

// front returns how many chains are available, and the head of the first.
func (r *Ring) front() (ready, head uint16, err error) {
	for range frontTries {
		idx, head := r.mem.front(r.avail, uint64(r.lastAvail&(r.size-1)))
		if ready = idx - r.lastAvail; ready <= r.size {
			return ready, head, nil
		}
	}
	return 0, 0, fmt.Errorf("%d chains available in a ring of %d: %w", ready, r.size, ErrBroken)
}

// Available reports whether Pop would find a chain, or an error.
func (r *Ring) Available() bool {
	ready, _, err := r.front()
	return ready > 0 || err != nil
}

// Pop takes the next chain that the driver made available into c, which is
// reused. It returns false if there is none. An error wraps ErrBroken.
func (r *Ring) Pop(c *Chain) (bool, error) {
	ready, head, err := r.front()
	if ready == 0 || err != nil {
		return false, err
	}
	c.reset(head)
	if err := r.walk(head, c); err != nil {
		return false, err
	}
	c.seal(r.mem)
	r.lastAvail++
	return true, nil
}

// Push returns a chain to the driver, with the number of bytes written to its
// In. The driver sees it when Do returns.
func (r *Ring) Push(head uint16, written uint32) {
	r.pushed = append(r.pushed, usedElem{head, written})
}

// usedElem is an entry of the used ring.
type usedElem struct {
	head    uint16
	written uint32
}

// encode appends the entry to p.
func (e usedElem) encode(p []byte) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(p, uint32(e.head)), e.written)
}

// descriptor is a copy, because the guest may change the original meanwhile.
type descriptor struct {
	addr        uint64
	len         uint32
	flags, next uint16
}

func decodeDescriptor(p []byte) descriptor {
	var d [descLen]byte
	copy(d[:], p)
	return descriptor{
		addr:  binary.LittleEndian.Uint64(d[0:]),
		len:   binary.LittleEndian.Uint32(d[8:]),
		flags: binary.LittleEndian.Uint16(d[12:]),
		next:  binary.LittleEndian.Uint16(d[14:]),
	}
}

// walk collects the pieces of a chain. It takes at most size steps, one per
// descriptor, the most a driver may chain (virtio 1.2, section 2.7.5.3.1). Most
// chains are one descriptor, of the data or of an indirect table: only for
// longer ones the whole table is viewed.
func (r *Ring) walk(head uint16, c *Chain) error {
	if head >= r.size {
		return fmt.Errorf("descriptor %d of %d: %w", head, r.size, ErrBroken)
	}
	table, n, i := r.mem.view(r.desc.cut(descLen*uint64(head), descLen), &r.table), r.size, uint16(0)
	direct, indirect := false, false
	for range int(r.size) + 1 {
		d := decodeDescriptor(table[int(i)*descLen:])
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
		if i = d.next; i >= n {
			return fmt.Errorf("descriptor %d of %d: %w", i, n, ErrBroken)
		}
		if !indirect && !direct {
			table, direct = r.mem.view(r.desc, &r.table), true
		}
	}
	return fmt.Errorf("chain of more than %d descriptors: %w", r.size, ErrBroken)
}

func (r *Ring) indirectTable(d descriptor) ([]byte, uint16, error) {
	if d.len == 0 || d.len%descLen != 0 || d.len/descLen > uint32(r.size) {
		return nil, 0, fmt.Errorf("indirect table of %d bytes: %w", d.len, ErrBroken)
	}
	table := r.mem.guest(d.addr, uint64(d.len))
	if table.len != uint64(d.len) {
		return nil, 0, fmt.Errorf("indirect table at %#x is not in memory: %w", d.addr, ErrBroken)
	}
	return r.mem.view(table, &r.table), uint16(d.len / descLen), nil
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
		if piece.len == 0 {
			return fmt.Errorf("buffer at %#x is not in memory: %w", addr, ErrBroken)
		}
		*to = append(*to, piece)
		addr += piece.len
		left -= piece.len
	}
	return nil
}
