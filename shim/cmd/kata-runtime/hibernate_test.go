package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
)

// Hibernate is refused, and the pod is awake.
func (onePod) Hibernate(context.Context) (virtcontainers.Hibernation, error) {
	return virtcontainers.Hibernation{}, fmt.Errorf("a device of the host is in the guest: %w", errdefs.ErrFailedPrecondition)
}

func (onePod) Wake(context.Context) error { return nil }

// sleeper is a sandbox that can hibernate.
type sleeper struct {
	onePod
	saved *atomic.Pointer[virtcontainers.Hibernation]
}

func (s sleeper) Hibernate(context.Context) (virtcontainers.Hibernation, error) {
	h := virtcontainers.Hibernation{Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), MemoryBytes: 212<<20 + 1, ImageBytes: 61 << 20}
	s.saved.Store(&h)
	return h, nil
}

func (s sleeper) Wake(context.Context) error {
	s.saved.Store(nil)
	return nil
}

func (s sleeper) Describe() virtcontainers.Description {
	d := s.onePod.Describe()
	d.Hibernation = s.saved.Load()
	return d
}

// stateOf returns what pods shows of pod p1.
func stateOf(t *testing.T, h host) string {
	t.Helper()
	out, errs, code := call(t, h, "pods")
	header, rest, _ := strings.Cut(out, "\n")
	column := strings.Index(header, "STATE")
	if code != 0 || errs != "" || column < 0 || !strings.HasPrefix(rest, "p1 ") {
		t.Fatalf("pods: %d, %q, %s", code, errs, out)
	}
	return strings.Fields(rest[column:])[0]
}

func TestHibernateCommand(t *testing.T) {
	h := withSandbox(t, sleeper{saved: new(atomic.Pointer[virtcontainers.Hibernation])}, false)
	if state := stateOf(t, h); state != "running" {
		t.Errorf("before: %s", state)
	}
	const step = "hibernate: save the memory of pod p1\n"
	if out, errs, code := call(t, h, "hibernate", "p"); code != 0 || errs != step || out != "p1: 212 MiB of memory given back, 61 MiB on disk\n" {
		t.Errorf("hibernate: %d, %q %q", code, out, errs)
	}
	if state := stateOf(t, h); state != "hibernating" {
		t.Errorf("after: %s", state)
	}
	if out, _, _ := call(t, h, "pods", "--json"); !strings.Contains(out, `"hibernation": {`) {
		t.Errorf("pods --json: %s", out)
	}
	if out, errs, code := call(t, h, "wake", "p1"); code != 0 || errs != "wake: pod p1\n" || out != "" {
		t.Errorf("wake: %d, %q %q", code, out, errs)
	}
	if state := stateOf(t, h); state != "running" {
		t.Errorf("awake: %s", state)
	}
	var saved virtcontainers.Hibernation
	out, errs, code := call(t, h, "hibernate", "--json", "p1")
	if err := json.Unmarshal([]byte(out), &saved); err != nil || code != 0 || errs != step || saved.ImageBytes != 61<<20 {
		t.Errorf("hibernate --json: %v, %d, %q %q", err, code, out, errs)
	}
}

func TestHibernateCommandRefuses(t *testing.T) {
	h := withRecords(t, false)
	for args, want := range map[string]string{
		"hibernate": "want one pod's id: see kata-runtime hibernate --help", "hibernate p1 p2": "want one pod's id",
		"hibernate other": "no pod of that id runs", "hibernate --yaml p1": "see kata-runtime hibernate --help",
		"wake": "want one pod's id: see kata-runtime wake --help", "wake p1 p2": "want one pod's id", "wake other": "no pod of that id runs",
		"hibernate p1": "hibernate: save the memory of pod p1\nkata-runtime: hibernate pod p1: 409 Conflict: a device of the host is in the guest",
	} {
		out, errs, code := call(t, h, strings.Fields(args)...)
		if code != 1 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1+strings.Count(want, "\n") {
			t.Errorf("%s: %d, %q %q, want %q", args, code, out, errs, want)
		}
	}
}

// Who interrupts the command learns that the shim continues.
func TestHibernateInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs strings.Builder
	code := run(ctx, []string{"kata-runtime", "wake", "p1"}, io.Discard, &errs, withRecords(t, false))
	if code != 1 || !strings.HasSuffix(errs.String(), "context canceled: the shim continues\n") {
		t.Errorf("%d, %q", code, errs.String())
	}
}
