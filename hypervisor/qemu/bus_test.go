package qemu

import (
	"slices"
	"testing"
)

// Each slot is tried once, and those of one interrupt line before another's.
func TestSlotOrder(t *testing.T) {
	lines := 1
	for n := range pciBus.size() {
		if n > 0 && pciBus.nth(n)%interruptLines != pciBus.nth(n-1)%interruptLines {
			lines++
		}
	}
	if lines != interruptLines {
		t.Errorf("the order %v changes to another line %d times", slotOrder, lines-1)
	}
	sorted := slices.Sorted(slices.Values(slotOrder))
	for i, slot := range sorted {
		if slot != firstSlot+i {
			t.Fatalf("sorted, the slots are %v", sorted)
		}
	}
	if len(sorted) != lastSlot {
		t.Errorf("there are %d slots, want %d", len(sorted), lastSlot)
	}
}
