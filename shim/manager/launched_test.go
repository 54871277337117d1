package manager

import (
	"strconv"
	"testing"
	"time"
)

func TestLaunched(t *testing.T) {
	now := time.Now()
	unix := func(at time.Time) string { return strconv.FormatInt(at.UnixNano(), 10) }
	begun := now.Add(-50 * time.Millisecond)
	if got := readLaunched(unix(begun), now); now.Sub(got) != 50*time.Millisecond {
		t.Errorf("%v before now, want 50ms", now.Sub(got))
	}
	for _, value := range []string{"", "x", "0", unix(now.Add(time.Hour)), unix(now.Add(-time.Hour)), "9223372036854775807"} {
		if got := readLaunched(value, now); !got.IsZero() {
			t.Errorf("%q: %v, want none", value, got)
		}
	}
}
