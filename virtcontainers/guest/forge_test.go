package guest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// logged returns the host's log after one line from the guest.
func logged(line []byte) string {
	var out bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&out)
	logger.SetLevel(logrus.DebugLevel)
	ctx := log.WithLogger(context.Background(), logrus.NewEntry(logger).WithField("sandbox", "s1"))
	logLine(ctx, line)
	return out.String()
}

func TestGuestCannotForgeLines(t *testing.T) {
	for _, line := range []string{
		`{"msg":"x\nlevel=error msg=forged"}`,
		`{"msg":"x","a\nlevel=error msg=forged b":1}`,
		`{"msg":"x","sandbox":"other","source":"host"}`,
		`{"msg":"x","k":"v\nlevel=error"}`,
		"plain\x1b[2J\nlevel=error",
	} {
		checkOneLine(t, logged([]byte(line)))
	}
}

func TestLogBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const line = 8 << 10
		budget := newLogBudget()
		passed := 0
		for range 1000 {
			if ok, _ := budget.take(line); ok {
				passed++
			}
		}
		if want := logBurst / (line + lineCost); passed != want {
			t.Errorf("%d lines were logged at once, want %d", passed, want)
		}
		time.Sleep(10 * time.Second)
		if ok, dropped := budget.take(line); !ok || dropped != 1000-passed {
			t.Errorf("ten seconds later: %v, %d dropped, want %d", ok, dropped, 1000-passed)
		}
	})
}

func checkOneLine(t *testing.T, out string) {
	t.Helper()
	if strings.Count(out, "\n") != 1 || strings.ContainsAny(strings.TrimSuffix(out, "\n"), "\r\x1b") {
		t.Errorf("more than one line, or control characters: %q", out)
	}
	if strings.Count(out, "sandbox=s1") < 1 || strings.Contains(out, "sandbox=other") || !strings.Contains(out, "source=agent") {
		t.Errorf("the host's own fields were changed: %q", out)
	}
}

func FuzzLogLine(f *testing.F) {
	f.Add([]byte(`{"level":"warning","msg":"m","time":"t","container":"c1"}`))
	f.Add([]byte("not JSON"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.Contains(line, []byte("sandbox=")) {
			return // a message may hold anything; it is quoted
		}
		checkOneLine(t, logged(line))
	})
}
