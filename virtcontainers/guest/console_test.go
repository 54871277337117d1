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
		const rate = 500 // as in log.go
		ctx, l := withLog(t.Context())
		say := guest.ConsoleLog(ctx)
		for range rate + 7 {
			say("[    0.1] noise")
		}
		if n := len(l.entries(t)); n != rate {
			t.Errorf("%d lines were logged in a second, want %d", n, rate)
		}
		time.Sleep(time.Second)
		say("Kernel panic")
		want := []map[string]any{
			{"level": "warning", "msg": "7 lines of the guest's console were dropped", "source": "console"},
			{"level": "info", "msg": "Kernel panic", "source": "console"},
		}
		if diff := cmp.Diff(want, l.entries(t)[rate:]); diff != "" {
			t.Error(diff)
		}
	})
}
