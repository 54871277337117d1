package virtcontainers_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// makers starts makers that only hold the lock.
type makers struct {
	startErr, waitErr error
	// ordered receives an entry for each.
	ordered chan virtcontainers.TemplateOrder

	mu    sync.Mutex
	locks []*factory.Lock
}

func newMakers() *makers { return &makers{ordered: make(chan virtcontainers.TemplateOrder, 10)} }

func (m *makers) start(order virtcontainers.TemplateOrder) (func(context.Context) error, error) {
	if m.startErr != nil {
		return nil, m.startErr
	}
	fd, err := unix.FcntlInt(order.Lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.locks = append(m.locks, factory.InheritLock(os.NewFile(uintptr(fd), "lock")))
	m.mu.Unlock()
	m.ordered <- order
	return func(context.Context) error { return m.waitErr }, nil
}

// end ends all of them.
func (m *makers) end(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.locks {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	m.locks = nil
}

// runOne boots a sandbox that can order templates, runs a container in it,
// unless started is false, and stops it.
func runOne(t *testing.T, host *fakeguest.Host, m *makers, opts virtcontainers.Options, started bool) {
	t.Helper()
	platform := host.Platform()
	if m != nil {
		platform.StartMaker = m.start
	}
	s, err := virtcontainers.New(t.Context(), platform, opts)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Sandbox: s, t: t, host: host}
	c := p.create(sandboxID)
	if m != nil && len(m.ordered) > 0 {
		t.Error("a template is made before a container runs")
	}
	if started {
		p.start(initOf(t, c))
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, host)
}

// A pod that misses its template orders it when its first container runs, and
// later pods start from it.
func TestMissedTemplate(t *testing.T) {
	host, opts, store := templateHost(t)
	opts.Config.Source = []string{"/etc/a.toml", "/etc/config.d/b.toml"}
	m := newMakers()
	runOne(t, host, m, opts, true)
	order := await(t, "the order", m.ordered)
	self, err := os.ReadFile("/proc/self/cgroup")
	if order.Config != "/etc/a.toml" || string(order.Home) != string(self) || err != nil {
		t.Errorf("ordered %+v", order)
	}
	// Another pod misses it too, and leaves it to that maker.
	runOne(t, host, m, opts, true)
	if n := len(m.ordered); n != 0 {
		t.Errorf("%d more are ordered while one is made", n)
	}
	if _, err := virtcontainers.MakeTemplate(t.Context(), host.Platform(), opts.Config, virtcontainers.TemplateOptions{Lock: m.locks[0], Wanted: order.Key}); err != nil {
		t.Fatal(err)
	}
	m.end(t)
	if !fromTemplate(t, host, opts) {
		t.Error("the sandbox does not come from the template")
	}
	list, err := store.List()
	if err != nil || len(list) != 1 || list[0].Config != "/etc/a.toml" {
		t.Errorf("list: %+v, %v", list, err)
	}
	runOne(t, host, m, opts, true)
	if n := len(m.ordered); n != 0 {
		t.Errorf("%d are ordered although there is one", n)
	}
}

// No template is made for a sandbox whose annotations change the machine, nor
// if templates are disabled.
func TestTemplateNotOrdered(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*virtcontainers.Options)
		started bool
	}{
		"another machine": {func(o *virtcontainers.Options) {
			plain := *o.Config
			plain.Hypervisor.MemoryMiB = 512
			o.Config.Plain = &plain
		}, true},
		"none possible": {func(o *virtcontainers.Options) { o.Config.Hypervisor.EntropySource = "" }, true},
		"off":           {func(o *virtcontainers.Options) { o.Config.Factory.Template = false }, true},
		"never started": {func(*virtcontainers.Options) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			host, opts, _ := templateHost(t)
			opts.Config.Hypervisor.EntropySource = "/dev/zero"
			tt.change(&opts)
			m := newMakers()
			runOne(t, host, m, opts, tt.started)
			if n := len(m.ordered); n != 0 {
				t.Errorf("%d templates are ordered", n)
			}
		})
	}
}

// With annotations that do not change the machine, its template is made.
func TestTemplateOfPlainMachine(t *testing.T) {
	host, opts, _ := templateHost(t)
	plain := *opts.Config
	opts.Config.Plain = &plain
	opts.Config.Runtime.Debug = true
	m := newMakers()
	runOne(t, host, m, opts, true)
	_ = await(t, "the order", m.ordered)
	m.end(t)
}

// After a maker could not be started or failed, none follows immediately; a
// host without makers works without templates.
func TestMakerFails(t *testing.T) {
	for name, m := range map[string]*makers{
		"start": {startErr: errInjected}, "end": {waitErr: errInjected, ordered: make(chan virtcontainers.TemplateOrder, 10)}, "none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			host, opts, store := templateHost(t)
			for range 2 {
				runOneUntil(t, host, m, opts, store)
			}
			if m == nil {
				return
			}
			list, err := store.Failures()
			if err != nil || len(list) != 1 || list[0].Times != 1 || !strings.Contains(list[0].Why, errInjected.Error()) {
				t.Fatalf("failures: %+v, %v", list, err)
			}
			m.end(t)
			if _, err := store.Claim(list[0].Key); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("claim: %v", err)
			}
		})
	}
}

// runOneUntil is like runOne, but the sandbox lives until the maker's result is
// known.
func runOneUntil(t *testing.T, host *fakeguest.Host, m *makers, opts virtcontainers.Options, store factory.Store) {
	t.Helper()
	platform := host.Platform()
	if m != nil {
		platform.StartMaker = m.start
	}
	s, err := virtcontainers.New(t.Context(), platform, opts)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Sandbox: s, t: t, host: host}
	p.run(sandboxID)
	if m != nil {
		eventually(t, "the failure", func() bool { list, err := store.Failures(); return err == nil && len(list) == 1 })
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// While no spare may be made, a pod that misses its template orders that alone:
// it does not wait until spares may be tried again.
func TestTemplateWithoutSpares(t *testing.T) {
	host, opts := spareHost(t)
	opts.Config.Factory.Template, opts.Config.Source = true, []string{"/etc/a.toml"}
	home, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	name, err := pool.NameOf("", "/etc/a.toml", home)
	if err != nil {
		t.Fatal(err)
	}
	store := factory.Store{Dir: opts.Config.Factory.TemplatePath}
	lock, err := store.Lock() // makes the store
	if err := errors.Join(err, lock.Close(), store.Fail(factory.Key(name), errInjected)); err != nil {
		t.Fatal(err)
	}
	m, spares := newMakers(), make(chan virtcontainers.TemplateOrder, 10)
	platform := host.Platform()
	platform.StartMaker = m.start
	platform.StartSpare = func(o virtcontainers.TemplateOrder) error { spares <- o; return nil }
	s, err := virtcontainers.New(t.Context(), platform, opts)
	if err != nil {
		t.Fatal(err)
	}
	(&pod{Sandbox: s, t: t, host: host}).run(sandboxID)
	if order := await(t, "the order", m.ordered); order.Config != "/etc/a.toml" {
		t.Errorf("ordered %+v", order)
	}
	m.end(t)
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(spares); n != 0 {
		t.Errorf("%d spares are ordered soon after one failed", n)
	}
}
