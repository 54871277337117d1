package container

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/katabox/katabox/standalone/spec"
)

// The exit code is the command's, even if the cleanup fails: that is a warning, and
// in the record.
func TestCleanupFails(t *testing.T) {
	for _, remove := range []bool{false, true} {
		m, img := newManager(t)
		var said []string
		stdio := &Stdio{Warn: func(text string) { said = append(said, text) }}
		c := run(t, m, img, Options{Name: "c", Remove: remove}, stdio)
		c.undo = append(c.undo, func(context.Context) error { return errors.New("it is stuck") })
		if err := c.Kill(t.Context(), 9); err != nil {
			t.Fatal(err)
		}
		if code, err := c.Wait(t.Context(), stdio); code != 137 || err != nil {
			t.Errorf("exit code %d, %v; want 137", code, err)
		}
		if !slices.Equal(said, []string{"it is stuck"}) {
			t.Errorf("warnings %q", said)
		}
		if r, err := m.Load("c"); !remove && (err != nil || !slices.Equal(r.Warnings, said)) {
			t.Errorf("its record: %+v, %v", r, err)
		}
	}
}

// The same of an exec.
func TestExecCleanupFails(t *testing.T) {
	m, img := newManager(t)
	stdio := new(Stdio)
	c := run(t, m, img, Options{Name: "c", Remove: true}, stdio)
	said := ""
	streams := &Stdio{Warn: func(text string) { said = text }}
	e, err := m.StartExec(t.Context(), "c", spec.Options{Args: []string{"sh"}}, streams)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	streams.log, err = openLog(t.TempDir()) // it cannot be closed twice
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.log.close(); err != nil {
		t.Fatal(err)
	}
	if code, err := e.Wait(t.Context(), streams); code != 137 || err != nil {
		t.Errorf("exit code %d, %v; want 137", code, err)
	}
	if !strings.Contains(said, "container's log") {
		t.Errorf("warning %q", said)
	}
	if err := c.Kill(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if code, err := c.Wait(t.Context(), stdio); code != 137 || err != nil {
		t.Errorf("exit code %d, %v; want 137", code, err)
	}
}
