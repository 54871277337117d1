package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/standalone/spec"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
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

// A run that is interrupted while its machine boots leaves no shim, and its name is
// free.
func TestInterruptedBoot(t *testing.T) {
	m, img := newManager(t)
	booting := filepath.Join(t.TempDir(), "booting")
	t.Setenv(shimtest.HangEnv, booting)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	pid := 0
	go func() {
		defer interrupt()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(booting); err == nil {
				break
			}
		}
		data, err := os.ReadFile(filepath.Join(m.Store.ContainerDir("c"), bundle.PIDFile))
		if err == nil {
			pid, err = strconv.Atoi(string(data))
		}
		if err != nil {
			t.Error(err)
		}
	}()
	o := Options{Name: "c", Network: NoNetwork, Spec: spec.Options{Args: []string{"sh"}}}
	if _, err := m.Create(ctx, img, o, new(Stdio)); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted creation: %v", err)
	}
	if p, err := persist.Identify(pid); err == nil && p.Alive() {
		t.Errorf("shim %d still runs", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if _, err := os.Stat(m.Store.ContainerDir("c")); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
	t.Setenv(shimtest.HangEnv, "")
	stdio := new(Stdio)
	c := run(t, m, img, Options{Name: "c", Remove: true}, stdio)
	if err := c.Kill(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if code, err := c.Wait(t.Context(), stdio); code != 137 || err != nil {
		t.Errorf("the next container of that name: exit code %d, %v; want 137", code, err)
	}
}

// The exit code of an exec is its command's, too, if the cleanup fails.
func TestExecCleanupFails(t *testing.T) {
	m, img := newManager(t)
	stdio := new(Stdio)
	c := run(t, m, img, Options{Name: "c", Remove: true}, stdio)
	said := ""
	streams := &Stdio{Warn: func(text string) { said = text }}
	l, err := openLog(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil { // it cannot be closed twice
		t.Fatal(err)
	}
	streams.log = l
	e, err := m.StartExec(t.Context(), "c", spec.Options{Args: []string{"sh"}}, streams)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), 9); err != nil {
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
