package hypervisor

import "testing"

func TestMemoryBlockMiB(t *testing.T) {
	const gib = 1 << 10
	for boot, want := range map[uint64]uint64{
		256: 128, 2 * gib: 128, 62*gib - 128: 128, 62 * gib: 2 * gib, 63 * gib: gib, 64 * gib: 2 * gib,
		64*gib + 512: 512, 64*gib + 128: 128, 64*gib + 100: 128, 1 << 20: 2 * gib,
	} {
		if got := MemoryBlockMiB(boot); got != want {
			t.Errorf("with %d MiB a block has %d MiB, want %d", boot, got, want)
		}
	}
}
