package container

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// silentShim gives a container's directory the address of a shim that accepts
// connections and answers nothing, like one that is stopped (SIGSTOP), and an engine
// that waits for it. The program that cleans up after it does nothing.
func silentShim(t *testing.T, m *Manager, dir string) persist.Process {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.WriteFile(filepath.Join(dir, bundle.AddressFile), []byte(bundle.AddressScheme+socket), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	engine, err := persist.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	m.Shim = filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(m.Shim, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.answerTimeout = 200 * time.Millisecond
	now := time.Now()
	if err := m.write(&Record{Name: filepath.Base(dir), Engine: engine, Started: &now}); err != nil {
		t.Fatal(err)
	}
	return engine
}

// A container whose shim does not answer is not waited for without end, and can be
// removed.
func TestSilentShim(t *testing.T) {
	m, _, dir := newContainer(t, "c")
	engine := silentShim(t, m, dir)
	ended := make(chan error, 1)
	go func() { ended <- m.Stop(t.Context(), "c", time.Minute) }()
	select {
	case err := <-ended:
		if !errors.Is(err, errSilent) || !engine.Alive() {
			t.Errorf("stop: %v; the engine is alive: %v", err, engine.Alive())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("stop waits for a shim that does not answer")
	}
	if err := m.Remove(t.Context(), "c", true); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) || engine.Alive() {
		t.Errorf("its directory: %v; its engine is alive: %v", err, engine.Alive())
	}
}

// An operator who does not want to wait any longer for a container's end can say so.
func TestStopIsInterrupted(t *testing.T) {
	m, _, dir := newContainer(t, "c")
	engine := silentShim(t, m, dir)
	if err := os.Remove(filepath.Join(dir, bundle.AddressFile)); err != nil { // there is no shim that the signal goes to
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, interrupt)
	began := time.Now()
	if err := m.Stop(ctx, "c", 20*time.Second); !errors.Is(err, context.Canceled) || !engine.Alive() {
		t.Errorf("%v; the engine is alive: %v", err, engine.Alive())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
