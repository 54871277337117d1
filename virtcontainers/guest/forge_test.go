package guest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// logged is what the host's log holds after one line of the guest's.
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

func TestLogRate(t *testing.T) {
	var rate logRate
	now := time.Unix(100, 0)
	passed := 0
	for range 3 * maxLogRate {
		if ok, _ := rate.allow(now); ok {
			passed++
		}
	}
	if passed != maxLogRate {
		t.Errorf("%d lines in one second were logged, want %d", passed, maxLogRate)
	}
	if ok, dropped := rate.allow(now.Add(time.Second)); !ok || dropped != 2*maxLogRate {
		t.Errorf("in the next second: %v, %d dropped", ok, dropped)
	}
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
			return // a message may say anything; it is quoted
		}
		checkOneLine(t, logged(line))
	})
}
