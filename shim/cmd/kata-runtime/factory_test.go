package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
)

// factoryHost is a host whose templates are in a directory of the test.
func factoryHost(t *testing.T) (*fakeHost, string) {
	t.Helper()
	f := newFakeHost(t)
	dir := filepath.Join(t.TempDir(), "templates")
	f.loadConfig = func(path string) (*config.Config, error) {
		if path != "" {
			return nil, errors.New("no file " + path)
		}
		return &config.Config{Factory: config.Factory{TemplatePath: dir}}, nil
	}
	f.makeTemplate = func(ctx context.Context, cfg *config.Config, progress func(string)) (factory.Key, error) {
		progress("vm")
		return factory.Store{Dir: cfg.Factory.TemplatePath}.Make(ctx, factory.Job{}, func(_ context.Context, p factory.Place) error {
			return errors.Join(os.WriteFile(filepath.Join(p.Dir, factory.MemoryFile), []byte("m"), 0o600),
				os.WriteFile(filepath.Join(p.Dir, factory.StateFile), []byte("s"), 0o600))
		})
	}
	return f, dir
}

func TestFactory(t *testing.T) {
	f, dir := factoryHost(t)
	status := func() factoryReport {
		t.Helper()
		out, errs, code := call(t, f.host, "factory", "status", "--json")
		var r factoryReport
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || errs != "" {
			t.Fatalf("status: %d, %q, %q, %v", code, out, errs, err)
		}
		return r
	}
	if r := status(); r.Enabled || r.Path != dir || len(r.Templates) != 0 {
		t.Errorf("before init: %+v", r)
	}
	out, errs, code := call(t, f.host, "factory", "init")
	if code != 0 || !strings.Contains(errs, "template: vm\n") || !strings.Contains(errs, "factory.enable_template is false") {
		t.Errorf("init: %d, %q, %q", code, out, errs)
	}
	key := strings.TrimSpace(out)
	if r := status(); len(r.Templates) != 1 || string(r.Templates[0].Key) != key || r.Templates[0].Current {
		t.Errorf("after init of %s: %+v", key, r)
	}
	if out, _, code := call(t, f.host, "factory", "status"); code != 0 || !strings.Contains(out, "enable_template is off; 1 in "+dir) || !strings.Contains(out, key) {
		t.Errorf("status: %d, %q", code, out)
	}
	if out, errs, code := call(t, f.host, "factory", "destroy"); code != 0 || out+errs != "" {
		t.Errorf("destroy: %d, %q, %q", code, out, errs)
	}
	if r := status(); len(r.Templates) != 0 {
		t.Errorf("after destroy: %+v", r)
	}
}

func TestFactoryUsage(t *testing.T) {
	f, _ := factoryHost(t)
	for _, test := range []struct{ args, want string }{
		{"init more", `unexpected argument "more"`},
		{"init --config /x", "no file /x"},
		{"status --config /x", "no file /x"},
		{"destroy --config /x", "no file /x"},
		{"make", `unknown command "make"`},
	} {
		_, errs, code := call(t, f.host, append([]string{"factory"}, strings.Fields(test.args)...)...)
		if code != 1 || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d, %q, want one line with %q", test.args, code, errs, test.want)
		}
	}
}
