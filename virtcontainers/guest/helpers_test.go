package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

var errInjected = errors.New("injected")

// newAgent returns an agent that is up.
func newAgent(t *testing.T) *fakeguest.Agent {
	t.Helper()
	a := fakeguest.NewAgent()
	t.Cleanup(a.Die)
	return a
}

// newBareAgent returns an agent that is up, whose guest has no pod yet.
func newBareAgent(t *testing.T) *fakeguest.Agent {
	t.Helper()
	a := fakeguest.NewBareAgent()
	t.Cleanup(a.Die)
	return a
}

// connect returns a client of an agent.
func connect(t *testing.T, a *fakeguest.Agent) *guest.Client {
	t.Helper()
	c, err := guest.Connect(t.Context(), a.Dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// logged collects what is logged, as JSON objects.
type logged struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// withLog returns a context whose log entries are collected.
func withLog(ctx context.Context) (context.Context, *logged) {
	l := new(logged)
	logger := logrus.New()
	logger.SetOutput(l)
	logger.SetLevel(logrus.TraceLevel)
	logger.SetFormatter(&logrus.JSONFormatter{})
	return log.WithLogger(ctx, logrus.NewEntry(logger)), l
}

// entries are the log entries so far, without their host time.
func (l *logged) entries(t *testing.T) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []map[string]any
	for line := range bytes.Lines(l.buf.Bytes()) {
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("a log entry is not one line of JSON: %q", line)
		}
		delete(entry, "time")
		list = append(list, entry)
	}
	return list
}

// await waits for that many entries.
func (l *logged) await(t *testing.T, n int) []map[string]any {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if list := l.entries(t); len(list) >= n {
			return list
		} else if time.Now().After(deadline) {
			t.Fatalf("%d log entries, want %d", len(list), n)
		}
	}
}
