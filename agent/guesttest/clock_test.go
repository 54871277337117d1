package guesttest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// offsetRead are the kernel's modes that read what is left of a gradual correction
// (linux/timex.h, ADJ_OFFSET_SS_READ).
const offsetRead = 0xa001

// The guest's clock is corrected at once, or by running faster or slower; a later
// correction replaces an earlier one.
func TestGuestClock(t *testing.T) {
	m := guestOnly(t)
	adjust := func(by time.Duration, step bool) time.Time {
		t.Helper()
		resp, err := m.guest.AdjustClock(t.Context(), &api.AdjustClockRequest{CorrectionUs: by.Microseconds(), Step: step})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetNow().AsTime()
	}
	left := func() time.Duration {
		read := unix.Timex{Modes: offsetRead}
		if _, err := unix.Adjtimex(&read); err != nil {
			t.Fatal(err)
		}
		return time.Duration(read.Offset) * time.Microsecond
	}
	began, at := time.Now(), adjust(0, false)
	const hour, slack = time.Hour, time.Minute // the machine is slow
	for _, step := range []time.Duration{hour + time.Microsecond, -2*hour - time.Microsecond, hour} {
		at = at.Add(step)
		if now := adjust(step, true); now.Before(at) || now.Sub(at) > slack {
			t.Errorf("after a step of %v: %v, want %v", step, now, at)
		}
	}
	for _, by := range []time.Duration{100 * time.Millisecond, -100 * time.Millisecond, time.Millisecond} {
		adjust(by, false)
		if got := left(); got == 0 || (got < 0) != (by < 0) || got.Abs() > by.Abs() {
			t.Errorf("of a correction by %v is left: %v", by, got)
		}
	}
	const off = 100 * time.Millisecond // what the last corrections have added by now
	least := time.Since(began) - off
	shown := adjust(0, false).Sub(began.Round(0))
	if most := time.Since(began) + off; shown < least || shown > most {
		t.Errorf("after all steps the clock has run for %v, want between %v and %v", shown, least, most)
	}
}
