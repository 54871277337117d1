package manager

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLogBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		budget := newLogBudget(&out)
		line := []byte(strings.Repeat("x", 1023) + "\n")
		const lines = 3 * logBurst / 1024
		for range lines {
			if n, err := budget.Write(line); n != len(line) || err != nil {
				t.Fatalf("wrote %d, %v", n, err)
			}
		}
		if out.Len() != logBurst {
			t.Errorf("%d bytes were logged at once, want %d", out.Len(), logBurst)
		}
		out.Reset()
		time.Sleep(time.Second)
		if _, err := budget.Write([]byte("next\n")); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, "8192 lines of the shim's log, 8388608 bytes, were left out") || !strings.HasSuffix(got, "next\n") {
			t.Errorf("logged %q", got)
		}
	})
}
