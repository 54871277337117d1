package sizing

import "testing"

// A host whose memory changes a little, as by its own balloon, has machines of the same
// key, and what a machine may have is hardly less than the host has.
func TestHostMemoryIsRounded(t *testing.T) {
	for _, pair := range [][2]uint64{{1985, 1999}, {7950, 7940}, {64_100, 64_020}, {515_800, 515_100}} {
		if a, b := roundMiB(pair[0]), roundMiB(pair[1]); a != b {
			t.Errorf("%d MiB are %d, %d are %d; want the same", pair[0], a, pair[1], b)
		}
	}
	for _, total := range []uint64{0, 1, 63, 64, 127, 128, 1980, 2048, 7950, 64_100, 1 << 20, 16_777_215} {
		if got := roundMiB(total); got > total || total-got > total/64 {
			t.Errorf("%d MiB become %d", total, got)
		}
	}
}
