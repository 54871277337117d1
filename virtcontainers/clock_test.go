package virtcontainers_test

import (
	"testing"
	"time"
)

// A clock that was set on waking is checked soon: the call that set it may have been
// slow.
func TestClockIsCheckedAfterWaking(t *testing.T) {
	t.Parallel()
	s := newSleeper(t)
	const soon = 10 * time.Second // Otherwise it is checked every 30 s.
	for checks := range 2 {
		s.clockChecks(checks+1, soon)
		s.sleeps()
		if err := s.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.clockChecks(3, soon)
}

// clockChecks waits until the guest's clock was checked that often.
func (s *sleeper) clockChecks(want int, within time.Duration) {
	s.t.Helper()
	count := 0
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		count = 0
		for _, call := range s.host.Agent.Calls() {
			if call == "AdjustClock" {
				count++
			}
		}
		if count >= want {
			return
		}
	}
	s.t.Fatalf("after %v the clock was checked %d times, want %d", within, count, want)
}
