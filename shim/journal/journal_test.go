package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
)

// newLogger returns a logger whose lines go only to the journal.
func newLogger() (*logrus.Logger, *Journal) {
	l, j := logrus.New(), New()
	l.SetOutput(io.Discard)
	l.AddHook(j)
	return l, j
}

// read decodes lines.
func read(t *testing.T, text []byte) (lines []map[string]any) {
	t.Helper()
	for l := range bytes.Lines(text) {
		var values map[string]any
		if err := json.Unmarshal(l, &values); err != nil {
			t.Fatalf("%v in %s", err, l)
		}
		lines = append(lines, values)
	}
	return lines
}

// messages returns the messages of lines, in order.
func messages(t *testing.T, text []byte) (list []string) {
	t.Helper()
	for _, l := range read(t, text) {
		list = append(list, l["msg"].(string))
	}
	return list
}

func TestLine(t *testing.T) {
	l, j := newLogger()
	l.WithFields(logrus.Fields{"error": errors.New("no \"way\"\nback"), "n": 7, "seq": 9, "time": "never", "bytes": []byte{1}, "d": time.Second}).Warn("a\nb")
	got := read(t, j.After(0))
	at, err := time.Parse(time.RFC3339Nano, got[0]["time"].(string))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("time %v, %v", at, err)
	}
	delete(got[0], "time")
	want := []map[string]any{{"seq": 1.0, "level": "warning", "msg": "a\nb", "error": "no \"way\"\nback", "n": 7.0, "bytes": "[1]", "d": "1s"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := bytes.Count(j.After(0), []byte("\n")); n != 1 {
		t.Errorf("%d lines for one", n)
	}
}

func TestAfter(t *testing.T) {
	l, j := newLogger()
	if got := j.After(0); len(got) != 0 {
		t.Errorf("a new journal has %s", got)
	}
	for _, m := range []string{"1", "a2", "a3", "4", "a5", "6"} {
		if from, of := strings.CutPrefix(m, "a"); of {
			l.WithField("source", "agent").Info(from)
		} else {
			l.Info(m)
		}
	}
	for after, want := range [][]string{{"1", "2", "3", "4", "5", "6"}, {"2", "3", "4", "5", "6"}, {"3", "4", "5", "6"}, {"4", "5", "6"}, {"5", "6"}, {"6"}, nil, nil} {
		if diff := cmp.Diff(want, messages(t, j.After(uint64(after)))); diff != "" {
			t.Errorf("after %d: %s", after, diff)
		}
	}
	if got := j.After(1<<64 - 1); len(got) != 0 {
		t.Errorf("after all: %s", got)
	}
}

// A guest's lines are bounded, and do not push out the shim's.
func TestBounds(t *testing.T) {
	l, j := newLogger()
	l.Info("the shim's")
	fields := logrus.Fields{"source": "agent"}
	for i := range 2 * maxFields {
		fields[strings.Repeat("x", i+1)] = strings.Repeat("y", 2*maxText)
	}
	for range 5 {
		l.WithFields(fields).Info(strings.Repeat("z", 2*maxText))
	}
	for range 4096 {
		l.WithField("source", "console").Info(strings.Repeat("\xff", 100))
	}
	got := j.After(0)
	lines := messages(t, got)
	if len(got) > 2*limit || lines[0] != "the shim's" || len(lines) < 50 {
		t.Errorf("%d bytes, %d lines, the first %.40q", len(got), len(lines), lines[0])
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := newLogger()
		time.AfterFunc(time.Second, func() { l.Info("late") })
		began := time.Now()
		j.Wait(t.Context(), 0)
		if time.Since(began) != time.Second {
			t.Errorf("waited %v", time.Since(began))
		}
		j.Wait(t.Context(), 0) // there is a line already
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		j.Wait(ctx, 1)
		if time.Since(began) != time.Second+time.Minute {
			t.Errorf("waited %v", time.Since(began))
		}
	})
}

// A guest has ttrpc log a line for each frame that it sends: they push out none of the
// shim's.
func TestTTRPCLinesHaveTheirRoom(t *testing.T) {
	l, j := newLogger()
	l.Info("the shim's own")
	for range limit / 64 {
		l.WithField("stream", 7).Error("ttrpc: received message on inactive stream")
	}
	if got := messages(t, j.After(0)); got[0] != "the shim's own" {
		t.Errorf("the first of %d lines is %q", len(got), got[0])
	}
}
