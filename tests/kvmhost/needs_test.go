package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

func TestAvailableMiB(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:       24683760 kB\nMemAvailable:   20480000 kB\n": 20000,
		"MemTotal:       24683760 kB\n":                              -1,
	} {
		path := filepath.Join(t.TempDir(), "meminfo")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := availableMiB(path); (err == nil) != (want >= 0) || (err == nil && got != want) {
			t.Errorf("%q: %d MiB, %v; want %d", text, got, err, want)
		}
	}
}

// The newest kernel package is used; without one the error says what to do.
func TestKernelPackage(t *testing.T) {
	l := harness.Layout{Root: t.TempDir()}
	if _, err := kernelPackages(l); err == nil || !strings.Contains(err.Error(), "make guest-image") {
		t.Errorf("without a package: %v", err)
	}
	cache := filepath.Join(l.Build(), "cache")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	newest := filepath.Join(cache, "linux-image-2.deb")
	for i, path := range []string{newest, filepath.Join(cache, "linux-image-3.deb")} {
		at := time.Unix(1000-int64(i), 0)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := kernelPackages(l); !slices.Equal(got, []string{newest}) || err != nil {
		t.Errorf("found %s, %v; want %s", got, err, newest)
	}
	binary := filepath.Join(cache, "linux-binary-4.deb")
	if err := os.WriteFile(binary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{binary, filepath.Join(cache, "linux-base-4.deb"), filepath.Join(cache, "linux-modules-4.deb")}
	if got, err := kernelPackages(l); !slices.Equal(got, want) || err != nil {
		t.Errorf("found %s, %v; want %s", got, err, want)
	}
}
