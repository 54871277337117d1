package vhostuser

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// memory is a mapped memory table. It is immutable; a new table replaces it as
// a whole. It is unmapped when it is closed and the last chain taken from it is
// returned: until then a system call may still write to it.
type memory struct {
	regions []mapping
	// users counts the table itself, until close, and the taken chains.
	users atomic.Int64
}

type mapping struct {
	region
	data []byte
}

// mapMemory maps the regions of a table. The caller owns the descriptors.
func mapMemory(regions []region, fds []int) (*memory, error) {
	m := &memory{}
	m.users.Store(1)
	for i, r := range regions {
		if err := m.add(r, fds[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("map memory region %d: %w", i, err), m.close())
		}
	}
	return m, nil
}

func (m *memory) add(r region, fd int) error {
	if r.size == 0 || r.guestAddr+r.size < r.guestAddr || r.userAddr+r.size < r.userAddr ||
		r.offset+r.size < r.offset || r.offset+r.size > 1<<62 {
		return fmt.Errorf("region %+v: %w", r, errMalformed)
	}
	for _, o := range m.regions {
		if r.guestAddr < o.guestAddr+o.size && o.guestAddr < r.guestAddr+r.size {
			return fmt.Errorf("region at %#x overlaps another: %w", r.guestAddr, errMalformed)
		}
	}
	if err := checkFile(fd, r.offset+r.size); err != nil {
		return err
	}
	// QEMU has already reserved all huge pages; do not reserve them again here.
	data, err := unix.Mmap(fd, int64(r.offset), int(r.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map %d bytes at %#x: %w", r.size, r.offset, err)
	}
	m.regions = append(m.regions, mapping{r, data})
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
	for _, r := range m.regions {
		errs = append(errs, unix.Munmap(r.data))
	}
	m.regions = nil
	return errors.Join(errs...)
}

// guest returns the memory at a guest physical address: at most n bytes, fewer
// if the region ends earlier, none if the address is not memory.
func (m *memory) guest(addr, n uint64) []byte {
	for i := range m.regions {
		r := &m.regions[i]
		if off := addr - r.guestAddr; addr >= r.guestAddr && off < r.size {
			return r.data[off : off+min(n, r.size-off)]
		}
	}
	return nil
}

// user returns exactly n bytes at an address of the front end, nil if they are
// not all in one region.
func (m *memory) user(addr, n uint64) []byte {
	for i := range m.regions {
		r := &m.regions[i]
		if off := addr - r.userAddr; addr >= r.userAddr && off < r.size && n <= r.size-off {
			return r.data[off : off+n : off+n]
		}
	}
	return nil
}
