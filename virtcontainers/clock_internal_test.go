package virtcontainers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

// guestClock is a clock that is late, behind calls that take some time each way.
type guestClock struct {
	late  time.Duration
	trips []time.Duration // of the next calls; then 0
	steps []bool          // how it was corrected
}

func (g *guestClock) adjust(ctx context.Context, by time.Duration, step bool) (time.Time, error) {
	trip := time.Duration(0)
	if len(g.trips) > 0 {
		trip, g.trips = g.trips[0], g.trips[1:]
	}
	time.Sleep(trip)
	if by != 0 {
		g.late -= by
		g.steps = append(g.steps, step)
	}
	shown := time.Now().Add(-g.late)
	time.Sleep(trip)
	return shown, ctx.Err()
}

// A clock that is wrong is corrected, at once or gradually; one that may be right is
// left alone.
func TestClockIsKept(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		guest guestClock
		first bool
		late  time.Duration // afterwards
		steps []bool
	}{
		"right":                         {guestClock{late: 1 * ms}, false, 1 * ms, nil},
		"late":                          {guestClock{late: 95 * ms}, false, 0, []bool{false}},
		"late at the start":             {guestClock{late: 95 * ms}, true, 0, []bool{true}},
		"early":                         {guestClock{late: -95 * ms}, false, 0, []bool{false}},
		"early at the start":            {guestClock{late: -95 * ms}, true, 0, []bool{false}},
		"very late":                     {guestClock{late: time.Hour}, false, 0, []bool{true}},
		"very early":                    {guestClock{late: -time.Hour}, false, 0, []bool{true}},
		"slow calls, right":             {guestClock{late: 9 * ms, trips: []time.Duration{30 * ms, 40 * ms, 30 * ms, 30 * ms}}, false, 9 * ms, nil},
		"slow calls, late":              {guestClock{late: 90 * ms, trips: []time.Duration{30 * ms, 40 * ms, 30 * ms, 30 * ms}}, false, 0, []bool{false}},
		"slow calls before a quick one": {guestClock{late: 9 * ms, trips: []time.Duration{30 * ms, 40 * ms, 1 * ms}}, false, 0, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kept := clock{adjust: c.guest.adjust, checked: !c.first}
				if _, err := kept.check(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c.guest.late != c.late || !slices.Equal(c.guest.steps, c.steps) {
					t.Errorf("late by %v, steps %v; want %v, %v", c.guest.late, c.guest.steps, c.late, c.steps)
				}
			})
		})
	}
}

// An error changes nothing, and the next check is still the first.
func TestClockIsNotKept(t *testing.T) {
	kept := clock{adjust: func(context.Context, time.Duration, bool) (time.Time, error) {
		return time.Time{}, errdefs.ErrNotImplemented
	}}
	if _, err := kept.check(t.Context()); !errdefs.IsNotImplemented(err) || kept.checked {
		t.Errorf("checked %v: %v", kept.checked, err)
	}
}
