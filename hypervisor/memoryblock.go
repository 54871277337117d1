package hypervisor

// The least and the largest memory block of Linux on x86, and the end of memory from
// which on it uses more than the least, in MiB (arch/x86/mm/init_64.c).
const (
	leastBlockMiB, mostBlockMiB = 128, 2 << 10
	largeFromMiB                = 64 << 10
)

// MemoryBlockMiB returns the unit in MiB in which a guest takes memory modules, if it
// boots with that much memory. Linux takes whole blocks at multiples of their size. On
// a virtual machine whose memory ends at 64 GiB or later a block is the largest by
// which that end can be divided (probe_memory_block_size).
func MemoryBlockMiB(bootMiB uint64) uint64 {
	// A q35 board has 2 GiB below the addresses of its devices, and the rest from 4 GiB
	// on (QEMU's hw/i386/pc_q35.c).
	end := bootMiB + 2<<10
	if end < largeFromMiB {
		return leastBlockMiB
	}
	block := uint64(mostBlockMiB)
	for block > leastBlockMiB && end%block != 0 {
		block /= 2
	}
	return block
}
