package vhostuser

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// memory is a mapped memory table. It does not change once made; a new table
// replaces it as a whole.
type memory struct {
	regions []mapping
}

type mapping struct {
	region
	data []byte
}

// mapMemory maps the regions of a table. The descriptors stay the caller's.
func mapMemory(regions []region, fds []int) (*memory, error) {
	m := &memory{}
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
	data, err := unix.Mmap(fd, int64(r.offset), int(r.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes at %#x: %w", r.size, r.offset, err)
	}
	m.regions = append(m.regions, mapping{r, data})
	return nil
}

// checkFile makes sure that a mapping of the file's first end bytes can never
// fault: the file is that long, it cannot shrink (F_SEAL_SHRINK, memfd_create(2)),
// and its pages cannot run out as those of hugetlbfs can.
func checkFile(fd int, end uint64) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("get seals of memory file: %w", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return errors.New("memory file is not sealed against shrinking")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("stat file system of memory file: %w", err)
	}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		return errors.New("memory file is on hugetlbfs, which is not supported")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat memory file: %w", err)
	}
	if st.Size < 0 || end > uint64(st.Size) {
		return fmt.Errorf("region ends at %d of a memory file of %d bytes: %w", end, st.Size, errMalformed)
	}
	return nil
}

func (m *memory) close() error {
	if m == nil {
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
