package resource

import (
	"fmt"
	"math"
)

// BlockMiB is the unit to which needs are rounded; a large machine takes memory in
// larger blocks (hypervisor.MemoryBlockMiB). It is Linux's memory block on x86 with up to
// 64 GiB (arch/x86/mm/init_64.c, probe_memory_block_size).
const BlockMiB = 128

// Machine is the size of a machine without containers, and how far it can
// grow.
type Machine struct {
	// VCPUs is the number of vCPUs without any container's; it may be a
	// fraction. MaxVCPUs is the most there can be, at least 1.
	VCPUs    float64
	MaxVCPUs uint32
	// MemoryMiB and MaxMemoryMiB are the same for memory; if MaxMemoryMiB is
	// below MemoryMiB, it cannot grow.
	MemoryMiB, MaxMemoryMiB uint64
}

// Size is how large a machine is to be.
type Size struct {
	VCPUs     uint32
	MemoryMiB uint64
	// Notes say what was requested but is not possible; each is part of a
	// sentence.
	Notes []string
}

// Size returns how large the machine must be for all those needs together.
// Another need never makes it smaller.
func (m Machine) Size(needs ...Need) Size {
	var all Need
	for _, n := range needs {
		all.cpu = add(all.cpu, n.cpu)
		all.memory = add(all.memory, n.memory)
		all.pinned = all.pinned.With(n.pinned)
	}
	var s Size
	s.setVCPUs(m, add(all.cpu, uint64(all.pinned.Count())*perCPU))
	s.setMemory(m, all.memory)
	return s
}

func (s *Size) setVCPUs(m Machine, extra uint64) {
	most := max(m.MaxVCPUs, 1)
	want := add(parts(m.VCPUs), extra)
	whole := want / perCPU
	if want%perCPU != 0 {
		whole++
	}
	if whole > uint64(most) {
		s.Notes = append(s.Notes, fmt.Sprintf("%d vCPUs are needed and there can be %d", whole, most))
		whole = uint64(most)
	}
	s.VCPUs = uint32(max(whole, 1))
}

// parts is a number of CPUs in parts of perCPU.
func parts(cpus float64) uint64 {
	switch cpus *= perCPU; {
	case !(cpus > 0): // also true for NaN
		return 0
	case cpus >= math.MaxUint64:
		return math.MaxUint64
	}
	return uint64(cpus)
}

// setMemory adds whole blocks to the machine's own memory.
func (s *Size) setMemory(m Machine, extra uint64) {
	const block = BlockMiB << 20
	blocks := extra / block
	if extra%block != 0 {
		blocks++
	}
	var room uint64
	if m.MaxMemoryMiB > m.MemoryMiB {
		room = (m.MaxMemoryMiB - m.MemoryMiB) / BlockMiB
	}
	if blocks > room {
		s.Notes = append(s.Notes, fmt.Sprintf("%d MiB of memory are needed and there can be %d",
			add(m.MemoryMiB, blocks*BlockMiB), m.MemoryMiB+room*BlockMiB))
		blocks = room
	}
	s.MemoryMiB = m.MemoryMiB + blocks*BlockMiB
}
