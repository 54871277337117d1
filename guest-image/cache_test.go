package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/katabox/katabox/guest-image/internal/debtest"
	"github.com/katabox/katabox/guest-image/internal/elftest"
)

func TestUpToDate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *options)
		built  bool
	}{
		{"nothing new", func(*testing.T, *options) {}, false},
		{"another cache", func(t *testing.T, o *options) { o.cache = t.TempDir() }, false},
		{"the agent was built again, the same", func(t *testing.T, o *options) { put(t, o.agent, get(t, o.agent)) }, false},
		{"the package was copied", func(t *testing.T, o *options) {
			data := get(t, o.debs[0])
			o.debs = []string{o.debs[0] + ".copy"}
			put(t, o.debs[0], data)
		}, false},
		{"the package was touched", func(t *testing.T, o *options) { touch(t, o.debs[0]) }, false},
		{"another agent", func(t *testing.T, o *options) { put(t, o.agent, elftest.Static("agent 2")) }, true},
		{"another package", change(func(files map[string][]byte) { files["usr/share/doc/new"] = nil }), true},
		{"another module", func(_ *testing.T, o *options) { o.modules = []string{"unused"} }, true},
		{"another compression", func(_ *testing.T, o *options) { o.compress = compressLZ4 }, true},
		{"forced", func(_ *testing.T, o *options) { o.force = true }, true},
		{"kernel is gone", func(t *testing.T, o *options) { remove(t, o.out, kernelName) }, true},
		{"initrd is gone", func(t *testing.T, o *options) { remove(t, o.out, initrdName) }, true},
		{"initrd was replaced", func(t *testing.T, o *options) { touch(t, filepath.Join(o.out, initrdName)) }, true},
		{"kernel was cut", func(t *testing.T, o *options) {
			if err := os.Truncate(filepath.Join(o.out, kernelName), 10); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"stamp is gone", func(t *testing.T, o *options) { remove(t, o.out, stampName) }, true},
		{"stamp is broken", func(t *testing.T, o *options) {
			put(t, filepath.Join(o.out, stampName), []byte(`{"request":`))
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := testOptions(t)
			if !mustBuild(t, opts) {
				t.Fatal("the first build did nothing")
			}
			tc.change(t, &opts)
			if built := mustBuild(t, opts); built != tc.built {
				t.Errorf("built: %v, want %v", built, tc.built)
			}
			if mustBuild(t, options{agent: opts.agent, out: opts.out, cache: opts.cache, debs: opts.debs, modules: opts.modules, compress: opts.compress}) {
				t.Error("not up to date after it was built")
			}
		})
	}
}

// TestUpToDateAsksNobody checks that an up-to-date image is recognized without
// any tool of the host.
func TestUpToDateAsksNobody(t *testing.T) {
	opts := testOptions(t)
	mustBuild(t, opts)
	t.Setenv("PATH", "")
	if mustBuild(t, opts) {
		t.Error("built again")
	}
}

// TestMovedRequestIsRemembered checks that apt is asked only once.
func TestMovedRequestIsRemembered(t *testing.T) {
	opts := testOptions(t)
	mustBuild(t, opts)
	touch(t, opts.debs[0])
	mustBuild(t, opts)
	if got, want := readStamp(opts.out).Request, currentRequest(opts); got != want {
		t.Errorf("the stamp has %v, want %v", got, want)
	}
}

func TestFailedBuildLeavesTheOldImage(t *testing.T) {
	opts := testOptions(t)
	mustBuild(t, opts)
	before := get(t, opts.out, initrdName)
	good := opts.debs
	opts.debs = []string{debtest.Build(t, map[string][]byte{"boot/vmlinuz-1": []byte("no kernel")})}
	if _, err := runBuild(t, opts); err == nil {
		t.Fatal("no error for a package without modules")
	}
	if !bytes.Equal(before, get(t, opts.out, initrdName)) {
		t.Error("the image has changed")
	}
	opts.debs = good
	if mustBuild(t, opts) {
		t.Error("the old image is not up to date any more")
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path ...string) {
	t.Helper()
	if err := os.Remove(filepath.Join(path...)); err != nil {
		t.Fatal(err)
	}
}
