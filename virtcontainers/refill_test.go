package virtcontainers_test

import (
	"errors"
	"os"
	"testing"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
)

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
