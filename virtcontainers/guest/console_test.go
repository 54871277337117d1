package guest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/virtcontainers/guest"
)

func TestConsoleLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const line = "[    0.1] noise"
		fit := guest.LogBurst / (len(line) + guest.LineCost)
		ctx, l := withLog(t.Context())
		say := guest.ConsoleLog(ctx)
		for range fit + 7 {
			say(line)
		}
		if n := len(l.entries(t)); n != fit {
			t.Errorf("%d lines were logged at once, want %d", n, fit)
		}
		time.Sleep(time.Second)
		say("Kernel panic")
		want := []map[string]any{
			{"level": "warning", "msg": "7 lines of the guest's console were dropped", "source": "console"},
			{"level": "info", "msg": "Kernel panic", "source": "console"},
		}
		if diff := cmp.Diff(want, l.entries(t)[fit:]); diff != "" {
			t.Error(diff)
		}
	})
}
