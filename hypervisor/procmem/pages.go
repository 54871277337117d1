package procmem

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Of a page's entry in pagemap, 8 bytes (Documentation/admin-guide/mm/pagemap.rst).
const (
	entrySize    = 8
	entryPresent = 1 << 63
	entrySwapped = 1 << 62
	// entryFile is set for pages of files, of which memfds are, and not for those
	// that the process has changed.
	entryFile = 1 << 61
)

// entries is how many pages are looked up at a time.
const entries = 4096

// eachRun calls do for each run of changed pages.
func (m *Mapping) eachRun(do func(at, length uint64) error) error {
	buf := make([]byte, entries*entrySize)
	var from, to uint64 // the run so far
	for at := uint64(0); at < m.size; {
		n := min(entries, (m.size-at)/pageSize)
		if _, err := m.pagemap.ReadAt(buf[:n*entrySize], int64((m.start+at)/pageSize*entrySize)); err != nil {
			return fmt.Errorf("look up the pages of %s: %w", m.Name(), err)
		}
		for i := range n {
			e := binary.NativeEndian.Uint64(buf[i*entrySize:])
			if e&(entryPresent|entrySwapped) == 0 || e&entryFile != 0 {
				continue
			}
			page := at + i*pageSize
			if page != to && to > from {
				if err := do(from, to-from); err != nil {
					return err
				}
			}
			if page != to {
				from = page
			}
			to = page + pageSize
		}
		at += n * pageSize
	}
	if to == from {
		return nil
	}
	return do(from, to-from)
}

// Used implements memfile.Memory.
func (m *Mapping) Used() (used uint64, err error) {
	err = m.eachRun(func(_, length uint64) error {
		used += length
		return nil
	})
	return used, err
}

// EachBlock implements memfile.Memory.
func (m *Mapping) EachBlock(buf []byte, do func(block []byte, at int64) error) error {
	buf = buf[:len(buf)/pageSize*pageSize]
	return m.eachRun(func(at, length uint64) error {
		for length > 0 {
			block := buf[:min(uint64(len(buf)), length)]
			if err := m.move(unix.ProcessVMReadv, block, at); err != nil {
				return fmt.Errorf("read %s: %w", m.Name(), err)
			}
			if err := do(block, int64(at)); err != nil {
				return err
			}
			at, length = at+uint64(len(block)), length-uint64(len(block))
		}
		return nil
	})
}

// PutBlock implements memfile.Memory. Pages of zeros are written as others: the
// file may have something else there.
func (m *Mapping) PutBlock(block []byte, at int64) error {
	if err := m.move(unix.ProcessVMWritev, block, uint64(at)); err != nil {
		return fmt.Errorf("write %s: %w", m.Name(), err)
	}
	return nil
}

// move is one of process_vm_readv(2) and process_vm_writev(2).
func (m *Mapping) move(call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error), p []byte, at uint64) error {
	if len(p) == 0 {
		return nil
	}
	pid, ok := m.owner.Hold()
	if !ok {
		return unix.ESRCH
	}
	defer m.owner.Release()
	local := [1]unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	n, err := call(pid, local[:], []unix.RemoteIovec{{Base: uintptr(m.start + at), Len: len(p)}}, 0)
	if err == nil && n != len(p) {
		err = fmt.Errorf("%d of %d bytes at %#x", n, len(p), at)
	}
	return err
}
