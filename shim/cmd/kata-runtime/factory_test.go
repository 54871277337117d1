package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/pool"
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
	if out, _, code := call(t, f.host, "factory", "init", "--json"); code != 0 || out != "{\n  \"enabled\": false,\n  \"key\": \""+key+"\"\n}\n" {
		t.Errorf("init --json: %d, %q", code, out)
	}
	if out, errs, code := call(t, f.host, "factory", "destroy"); code != 0 || out != "" || errs != "template: remove all in "+dir+"\nspares: end all\n" {
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

// Spares are listed, and destroy ends those of the configuration's directory.
func TestFactorySpares(t *testing.T) {
	f, dir := factoryHost(t)
	f.pool = pool.Pool{Dir: filepath.Join(t.TempDir(), "pool")}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- child.Wait() }()
	entries := make(map[string]*pool.Entry)
	for id, store := range map[string]string{"mine": dir, "others": "/other"} {
		e, err := f.pool.Add(id, pool.Info{Name: "n", Key: "key-of-" + id, Store: store, Engine: "/engine.sock"})
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Offer()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		entries[id] = e
	}
	becomeProcess(t, entries["mine"].Dir(), child.Process.Pid)
	want := []string{"vm_cache_number is 0; spares: 1", strconv.Itoa(child.Process.Pid) + "  ready", "key-of-mine", "/engine.sock"}
	out, _, code := call(t, f.host, "factory", "status")
	for _, w := range want {
		if code != 0 || !strings.Contains(out, w) || strings.Contains(out, "key-of-others") {
			t.Errorf("status: %d, %q; want %q", code, out, w)
		}
	}
	if out, _, code := call(t, f.host, "factory", "destroy"); code != 0 || out != "" {
		t.Errorf("destroy: %d, %q", code, out)
	}
	if err := <-reaped; err == nil {
		t.Error("the spare ended by itself")
	}
	list, err := f.pool.List()
	if err != nil || len(list) != 1 || list[0].ID != "others" {
		t.Errorf("left: %+v, %v", list, err)
	}
	if err := errors.Join(entries["others"].Remove(), f.pool.RemoveEmpty()); err != nil {
		t.Error(err)
	}
}

// becomeProcess makes a spare's record name another process.
func becomeProcess(t *testing.T, dir string, pid int) {
	t.Helper()
	file := filepath.Join(dir, "spare.json")
	var info pool.Info
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	if err == nil {
		info.Process, err = persist.Identify(pid)
	}
	if err == nil {
		text, err = json.Marshal(info)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
