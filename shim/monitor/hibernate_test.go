package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/virtcontainers"
)

var saved = virtcontainers.Hibernation{Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), MemoryBytes: 212 << 20, ImageBytes: 61 << 20}

func (p pod) Hibernate(context.Context) (virtcontainers.Hibernation, error) {
	if p.asleep == nil {
		return virtcontainers.Hibernation{}, fmt.Errorf("a device of the host is in the guest: %w", errdefs.ErrFailedPrecondition)
	}
	p.asleep.Store(true)
	return saved, nil
}

func (p pod) Wake(context.Context) error {
	if p.asleep != nil {
		p.asleep.Store(false)
	}
	return p.wakeErr
}

// theOnly serves a pod and returns it as operators see it.
func theOnly(t *testing.T, p pod) Pod {
	t.Helper()
	root := newRoot(t)
	listening(t, root, p)
	found, err := Find(root, p.id)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestHibernate(t *testing.T) {
	asleep := new(atomic.Bool)
	p := theOnly(t, pod{id: "p1", asleep: asleep})
	if got, err := p.Hibernate(t.Context()); err != nil || got != saved || !asleep.Load() {
		t.Errorf("hibernate: %+v, %v, asleep is %t", got, err, asleep.Load())
	}
	if d, err := p.Describe(t.Context()); err != nil || d.Hibernation == nil || *d.Hibernation != saved {
		t.Errorf("describe: %+v, %v", d, err)
	}
	if err := p.Wake(t.Context()); err != nil || asleep.Load() {
		t.Errorf("wake: %v, asleep is %t", err, asleep.Load())
	}
}

func TestHibernateRefused(t *testing.T) {
	p := theOnly(t, pod{id: "p1", wakeErr: fmt.Errorf("busy: %w", errdefs.ErrUnavailable)})
	_, hibernate := p.Hibernate(t.Context())
	for want, err := range map[string]error{
		"hibernate pod p1: 409 Conflict: a device of the host is in the guest: failed precondition": hibernate,
		"wake pod p1: 503 Service Unavailable: busy: unavailable":                                   p.Wake(t.Context()),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wake(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// A pod that hibernates is awake before its guest is called, and one that does not
// wake is not asked.
func TestCallsWake(t *testing.T) {
	for name, call := range map[string]func(Pod) error{
		"iptables": func(p Pod) error { _, err := p.IPTables(t.Context(), false); return err },
		"debug": func(p Pod) error {
			_, err := p.OpenDebug(t.Context())
			if err != nil && strings.Contains(err.Error(), "no debug console") {
				return nil
			}
			return fmt.Errorf("%w, want that there is no console", err)
		},
	} {
		asleep := new(atomic.Bool)
		asleep.Store(true)
		if err := call(theOnly(t, pod{id: "p1", asleep: asleep})); err != nil || asleep.Load() {
			t.Errorf("%s: %v, asleep is %t", name, err, asleep.Load())
		}
		err := call(theOnly(t, pod{id: "p1", wakeErr: errors.New("the disk is broken")}))
		if err == nil || !strings.Contains(err.Error(), "wake pod p1: 500 Internal Server Error: the disk is broken") {
			t.Errorf("%s of a pod that does not wake: %v", name, err)
		}
	}
}

// A shim that answers nothing is not waited for as long as a pod may take to wake.
func TestHungShimIsNotAwaited(t *testing.T) {
	root := newRoot(t)
	release := make(chan struct{})
	defer close(release)
	raw(t, root, "hangs", func(net.Conn) { <-release })
	p, err := Find(root, "hangs")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*askTimeout)
	defer cancel()
	var all sync.WaitGroup
	for name, call := range map[string]func() error{
		"hibernate": func() error { _, err := p.Hibernate(ctx); return err },
		"wake":      func() error { return p.Wake(ctx) },
		"debug":     func() error { _, err := p.OpenDebug(ctx); return err },
		"iptables":  func() error { _, err := p.IPTables(ctx, false); return err },
	} {
		all.Go(func() {
			if err := call(); err == nil || ctx.Err() != nil {
				t.Errorf("%s waited until the test's end: %v", name, err)
			}
		})
	}
	all.Wait()
}

// A shim of an older version has no path for it, and its pod is awake.
func TestOldShim(t *testing.T) {
	root := newRoot(t)
	raw(t, root, "old", func(c net.Conn) {
		request, text := make([]byte, 4096), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nrules"
		if n, _ := c.Read(request); strings.HasPrefix(string(request[:n]), "POST "+management.WakePath+" ") {
			text = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nthere is nothing at /wake"
		}
		_, _ = io.WriteString(c, text)
	})
	p, err := Find(root, "old")
	if err != nil {
		t.Fatal(err)
	}
	if rules, err := p.IPTables(t.Context(), false); err != nil || string(rules) != "rules" {
		t.Errorf("iptables: %q, %v", rules, err)
	}
	if err := p.Wake(t.Context()); !errdefs.IsNotFound(err) {
		t.Errorf("wake: %v, want that it is not found", err)
	}
}
