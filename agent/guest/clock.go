package guest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clockSlack is how far the guest's clock may be off before it is set: about a
// request's latency.
const clockSlack = 5 * time.Millisecond

// SetClock sets the wall clock to now when it differs by more than clockSlack.
func SetClock(now time.Time) error {
	if off := time.Since(now.Round(0)).Abs(); off <= clockSlack {
		return nil
	}
	ts, err := unix.TimeToTimespec(now)
	if err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	return nil
}

// AdjustClock adds a correction to the wall clock: at once, or by letting it run
// faster or slower for as long as that takes.
func AdjustClock(by time.Duration, step bool) error {
	if by == 0 {
		return nil
	}
	change := unix.Timex{Modes: unix.ADJ_OFFSET_SINGLESHOT, Offset: by.Microseconds()}
	if step {
		at := unix.NsecToTimeval(by.Nanoseconds()) // its microseconds are never negative, as the kernel requires
		change = unix.Timex{Modes: unix.ADJ_SETOFFSET, Time: at}
	}
	if _, err := unix.Adjtimex(&change); err != nil {
		return fmt.Errorf("adjust clock by %v: %w", by, err)
	}
	return nil
}

// SinceBoot returns the time since the kernel started, including suspend.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
