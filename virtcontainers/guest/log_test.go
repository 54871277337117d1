package guest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// forward starts to forward an agent's log; the function that it returns waits
// for the end.
func forward(t *testing.T, a *fakeguest.Agent) (*logged, func() error) {
	t.Helper()
	ctx, l := withLog(t.Context())
	ctx, cancel := context.WithCancel(ctx)
	c := connect(t, a)
	ended := make(chan error, 1)
	go func() { ended <- c.ForwardLog(ctx) }()
	return l, func() error {
		cancel()
		return <-ended
	}
}

func say(t *testing.T, a *fakeguest.Agent, text string) {
	t.Helper()
	if !a.Log(t.Context(), text) {
		t.Fatal("the log is not read")
	}
}

func TestForwardLog(t *testing.T) {
	tests := []struct {
		name, line string
		want       map[string]any
	}{
		{"a line", `{"level":"info","msg":"hello","time":"T","container":"c1"}`,
			map[string]any{"level": "info", "msg": "hello", "guest_time": "T", "container": "c1", "source": "agent"}},
		{"warning", `{"level":"warning","msg":"x"}`, map[string]any{"level": "warning", "msg": "x", "source": "agent"}},
		{"error", `{"level":"error","msg":"x"}`, map[string]any{"level": "error", "msg": "x", "source": "agent"}},
		{"a guest cannot end the shim", `{"level":"fatal","msg":"x"}`,
			map[string]any{"level": "error", "msg": "x", "source": "agent"}},
		{"debug", `{"level":"trace","msg":"x"}`, map[string]any{"level": "debug", "msg": "x", "source": "agent"}},
		{"unknown level", `{"level":"?","msg":"x"}`, map[string]any{"level": "info", "msg": "x", "source": "agent"}},
		{"nor another source", `{"msg":"x","source":"qemu"}`,
			map[string]any{"level": "info", "msg": "x", "source": "agent"}},
		{"wrong types", `{"msg":1,"level":[],"time":{}}`,
			map[string]any{"level": "info", "msg": "", "guest_time": "map[]", "source": "agent"}},
		{"nor a line of the host's", `{"msg":"x","a\nlevel=error":"y"}`, map[string]any{"level": "info", "msg": "x", "source": "agent"}},
		{"not JSON", `Kernel panic`, map[string]any{"level": "info", "msg": "Kernel panic", "source": "agent"}},
		{"not an object", `null`, map[string]any{"level": "info", "msg": "", "source": "agent"}},
	}
	a := newAgent(t)
	l, stop := forward(t, a)
	for i, tt := range tests {
		say(t, a, tt.line+"\n")
		if diff := cmp.Diff(tt.want, l.await(t, i+1)[i]); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A line without an end costs no memory, and the next line is read again.
func TestForwardLogCutsLines(t *testing.T) {
	a := newAgent(t)
	l, stop := forward(t, a)
	say(t, a, strings.Repeat("x", 10*api.MaxLogLine)+"\n"+"next\n")
	list := l.await(t, 2)
	if text := list[0]["msg"].(string); len(text) != api.MaxLogLine {
		t.Errorf("%d bytes of the first line were logged, want %d", len(text), api.MaxLogLine)
	}
	if list[1]["msg"] != "next" {
		t.Errorf("then %v", list[1])
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A flood neither blocks the guest nor fills the host's log, and the number of
// dropped lines is logged.
func TestForwardLogFlood(t *testing.T) {
	const lines = 20000
	a := newAgent(t)
	l, stop := forward(t, a)
	start := time.Now()
	text := strings.Repeat(`{"msg":"x"}`+"\n", 100)
	for range lines / 100 {
		say(t, a, text)
	}
	cost := len(text)/100 + guest.LineCost
	n := len(l.await(t, guest.LogBurst/cost))
	seconds := int(time.Since(start).Seconds()) + 2
	if most := (guest.LogBurst+seconds*guest.LogPerSecond)/cost + seconds; n > most {
		t.Errorf("%d entries in %d seconds, want at most %d", n, seconds, most)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestForwardLogEnds(t *testing.T) {
	a := newAgent(t)
	l, stop := forward(t, a)
	say(t, a, "last words") // without a newline
	a.Die()
	if msg := l.await(t, 1)[0]["msg"]; msg != "last words" {
		t.Errorf("logged %v", msg)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	a = newAgent(t)
	c := connect(t, a)
	a.Fail(fakeguest.Dial+" 1025", errInjected)
	if err := c.ForwardLog(t.Context()); err == nil || !strings.Contains(err.Error(), "open agent log") {
		t.Errorf("got %v", err)
	}
}

// Whatever a guest logs becomes one entry, at a level that does not end the
// process.
func FuzzLogEntry(f *testing.F) {
	for _, line := range []string{
		`{"level":"info","msg":"hello"}`, `{"level":"panic","msg":"a\nb","source":"qemu"}`, "{", "null", "[]",
		"\x1b[2Jx", `{"a":{"b":[1,2,{"c":null}]}}`, `{"msg":"\ud800"}`, `{"logrus_error":1,"error":{},"func":"x","file":"y"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		ctx, l := withLog(t.Context())
		guest.LogLine(ctx, line)
		list := l.entries(t)
		if len(list) != 1 {
			t.Fatalf("%d entries", len(list))
		}
		if source := list[0]["source"]; source != "agent" {
			t.Errorf("the source is %v", source)
		}
		switch level := list[0]["level"]; level {
		case "error", "warning", "info", "debug":
		default:
			t.Errorf("the level is %v", level)
		}
	})
}

// ForwardLines takes any bytes.
func FuzzForwardLines(f *testing.F) {
	f.Add([]byte("a\nb\n"))
	f.Add([]byte("{\"msg\":1}\n\n\n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx, l := withLog(t.Context())
		if err := guest.ForwardLines(ctx, strings.NewReader(string(data))); err != nil {
			t.Error(err)
		}
		if n := len(l.entries(t)); n > strings.Count(string(data), "\n")+1 {
			t.Errorf("%d entries from %d bytes", n, len(data))
		}
	})
}
