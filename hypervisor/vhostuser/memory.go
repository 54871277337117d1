package vhostuser

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// memory is a mapped memory table. It does not change once made; a new table
// replaces it as a whole. It is unmapped when it was closed and the last chain
// that was taken from it is back: until then a system call may still fill it.
type memory struct {
	regions []mapping
	// users counts the table itself, until close, and the chains taken.
	users atomic.Int64
}

type mapping struct {
	region
	data []byte
}

// mapMemory maps the regions of a table. The descriptors stay the caller's.
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
	// Huge pages are reserved by QEMU, which has them all, and not once more
	// here.
	data, err := unix.Mmap(fd, int64(r.offset), int(r.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map %d bytes at %#x: %w", r.size, r.offset, err)
	}
	m.regions = append(m.regions, mapping{r, data})
	return nil
}

// checkFile makes sure that the file's first end bytes are there now. Whether
// they stay, and whether there is a page behind each, depends on the file and
// on who holds it: memory of the host's own (memfd_create(2)) is sealed against
// shrinking by QEMU, a file in a directory cannot be, a file system may be full
// and the host's huge pages may run out. Then a touch is a fault: see guarded.
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

// close lets go of the table's own use. It may be called once.
func (m *memory) close() error {
	if m == nil {
		return nil
	}
	return m.release()
}

// retain keeps the table mapped; it is called where the table is in use.
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

// guest finds what lies at a guest physical address: at most n bytes, fewer if
// the region ends before, none if the address is not memory.
func (m *memory) guest(addr, n uint64) []byte {
	for i := range m.regions {
		r := &m.regions[i]
		if off := addr - r.guestAddr; addr >= r.guestAddr && off < r.size {
			return r.data[off : off+min(n, r.size-off)]
		}
	}
	return nil
}

// user finds exactly n bytes at an address of the front end, nil if they are
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
