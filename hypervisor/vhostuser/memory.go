package vhostuser

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// memory is a memory table. It is immutable; a new table replaces it as a
// whole. It is released when it is closed and the last chain taken from it is
// returned: until then a system call may still write to it.
type memory struct {
	access
	segments []*segment
	// users counts the table itself, until close, and the taken chains.
	users atomic.Int64
}

// segment is one region of a table. data is nil if it is not mapped here.
type segment struct {
	region
	data []byte
}

func newMemory(how access) *memory {
	m := &memory{access: how}
	m.users.Store(1)
	return m
}

// memoryOf makes a table of memory that is shared, or private to its owner. The
// caller owns the descriptors.
func memoryOf(owner Owner, regions []region, fds []int) (*memory, error) {
	if owner != nil {
		return foreignMemory(regions, owner)
	}
	return mapMemory(regions, fds)
}

// check refuses a region whose bounds wrap, or that overlaps another.
func (m *memory) check(r region) error {
	if r.size == 0 || r.guestAddr+r.size < r.guestAddr || r.userAddr+r.size < r.userAddr ||
		r.offset+r.size < r.offset || r.offset+r.size > 1<<62 {
		return fmt.Errorf("region %+v: %w", r, errMalformed)
	}
	for _, o := range m.segments {
		if r.guestAddr < o.guestAddr+o.size && o.guestAddr < r.guestAddr+r.size {
			return fmt.Errorf("region at %#x overlaps another: %w", r.guestAddr, errMalformed)
		}
	}
	return nil
}

// close drops the table's own reference. It may be called once.
func (m *memory) close() error {
	if m == nil {
		return nil
	}
	return m.release()
}

// retain adds a reference; the caller must already have one.
func (m *memory) retain() { m.users.Add(1) }

func (m *memory) release() error {
	if m.users.Add(-1) > 0 {
		return nil
	}
	var errs []error
	for _, s := range m.segments {
		errs = append(errs, m.unmap(s))
	}
	m.segments = nil
	return errors.Join(errs...)
}

// guest returns the memory at a guest physical address: at most n bytes, fewer
// if the region ends earlier, none if the address is not memory.
func (m *memory) guest(addr, n uint64) piece {
	for _, s := range m.segments {
		if off := addr - s.guestAddr; addr >= s.guestAddr && off < s.size {
			return piece{s, off, min(n, s.size-off)}
		}
	}
	return piece{}
}

// user returns exactly n bytes at an address of the front end; ok is false if
// they are not all in one region.
func (m *memory) user(addr, n uint64) (p piece, ok bool) {
	for _, s := range m.segments {
		if off := addr - s.userAddr; addr >= s.userAddr && off < s.size && n <= s.size-off {
			return piece{s, off, n}, true
		}
	}
	return piece{}, false
}
