package virtcontainers

import (
	"testing"
	"time"
)

// A larger machine may take longer to be saved.
func TestSaveTimeout(t *testing.T) {
	for mib, least := range map[int]time.Duration{256: 10 * time.Minute, 2 << 10: 14 * time.Minute, 64 << 10: 2 * time.Hour} {
		got := saveTimeout(mostStateBytes(uint64(mib)))
		if got < least || got > 2*least {
			t.Errorf("%d MiB: %v, want at least %v, and not twice as much", mib, got, least)
		}
	}
}
