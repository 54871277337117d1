package vhosttest

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MemSize is the length of the guest's memory, in bytes.
const MemSize = 64 << 20

// guestBase is the memory's address for the guest.
const guestBase = 0x4000_0000

// Memory is the guest's memory, mapped for the driver.
type Memory struct {
	Bytes []byte

	t    testing.TB
	fd   int
	next uint64
}

// NewMemory makes a memfd with the given seals. It is closed at the test's end.
func NewMemory(t testing.TB, seals int) *Memory {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	m := &Memory{t: t, fd: fd}
	if err := unix.Ftruncate(fd, MemSize); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	m.Bytes, err = unix.Mmap(fd, 0, MemSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Munmap(m.Bytes)
		_ = unix.Close(fd)
	})
	return m
}

// FD returns the memfd, which the Memory owns.
func (m *Memory) FD() int { return m.fd }

// Table returns the memory table with this memory as its only region.
func (m *Memory) Table() []byte {
	le := binary.LittleEndian
	p := le.AppendUint64(nil, 1)
	for _, v := range []uint64{guestBase, MemSize, m.user(guestBase), 0} {
		p = le.AppendUint64(p, v)
	}
	return p
}

// Alloc allocates n bytes, page-aligned, permanently. addr is their guest
// address.
func (m *Memory) Alloc(n int) (p []byte, addr uint64) {
	m.t.Helper()
	off := m.next
	m.next += (uint64(n) + 4095) &^ 4095
	if m.next > MemSize {
		m.t.Fatal("guest is out of memory")
	}
	return m.Bytes[off : off+uint64(n)], guestBase + off
}

// user converts a guest address to the front end's, which is this process's.
func (m *Memory) user(addr uint64) uint64 {
	return addr - guestBase + uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes))))
}
