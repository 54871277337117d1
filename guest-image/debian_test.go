package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/guest-image/internal/deb"
)

// debianCache is shared with real builds, so that a package is downloaded
// once.
const debianCache = "../build/cache"

// debianOptions returns flags for a build from Debian's package with the boot
// test's init as agent. It skips the test if the package is not available.
func debianOptions(t *testing.T) options {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: a build from Debian's package takes seconds")
	}
	opts := options{
		agent: filepath.Join(t.TempDir(), "bootinit"), out: filepath.Join(t.TempDir(), "guest"),
		cache: debianCache, kernelPackage: "linux-image-cloud-amd64", compress: compressLZ4,
	}
	var apt deb.Apt
	packages, err := apt.Resolve(t.Context(), opts.kernelPackage)
	if err != nil {
		t.Skipf("Debian's kernel package is unknown here: %v", err)
	}
	if err := os.MkdirAll(opts.cache, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pkg := range packages {
		if _, _, err := apt.Fetch(t.Context(), pkg, opts.cache); err != nil {
			t.Skipf("Debian's kernel package is out of reach: %v", err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid=", "-o", opts.agent, "./internal/bootinit")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the test's init: %v: %s", err, out)
	}
	return opts
}

func TestDebianBuildIsReproducible(t *testing.T) {
	opts := debianOptions(t)
	mustBuild(t, opts)
	other := opts
	other.out = filepath.Join(t.TempDir(), "other")
	mustBuild(t, other)
	for _, name := range []string{kernelName, initrdName} {
		if !bytes.Equal(get(t, opts.out, name), get(t, other.out, name)) {
			t.Errorf("%s differs", name)
		}
	}
	start := time.Now()
	if mustBuild(t, opts) {
		t.Error("built a third time")
	}
	t.Logf("up to date in %v", time.Since(start))
}

// debianBoot are the modules that Debian's 6.1 kernel loads in each pod. A longer
// list makes every pod start more slowly: add to it only if needed.
var debianBoot = []string{
	"fuse", "overlay", "virtio", "virtio_pci", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_ring",
	"virtiofs", "vmw_vsock_virtio_transport", "vmw_vsock_virtio_transport_common", "vsock",
}

var loadedLine = regexp.MustCompile(`(?m)^LOADED (\S+) us=`)

func TestDebianBoots(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("no qemu-system-x86_64: `apt-get install qemu-system-x86`")
	}
	opts := debianOptions(t)
	for _, compress := range []string{compressLZ4, compressNone} {
		t.Run(compress, func(t *testing.T) {
			opts.compress = compress
			mustBuild(t, opts)
			console := boot(t, qemu, opts.out)
			for _, bad := range []string{"FAILED", "Unknown symbol", "disagrees about version", "Kernel panic", "Call Trace"} {
				if strings.Contains(console, bad) {
					t.Errorf("the console says %q", bad)
				}
			}
			atBoot, demanded, ok := strings.Cut(console, "GROUP boot ")
			if !ok || !strings.Contains(demanded, "GROUP demand ") || !strings.Contains(demanded, "GROUP kernel ") || !strings.Contains(demanded, "READY") {
				t.Error("the guest did not come to its end")
			}
			if diff := cmp.Diff(debianBoot, loadedModules(atBoot)); diff != "" {
				t.Errorf("modules loaded at boot: %s", diff)
			}
			t.Log(console)
		})
	}
}

// loadedModules returns the modules that were loaded according to the console.
func loadedModules(console string) []string {
	var names []string
	for _, m := range loadedLine.FindAllStringSubmatch(console, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// boot runs the image until it powers off and returns its console.
func boot(t *testing.T, qemu, dir string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var console bytes.Buffer
	cmd := exec.CommandContext(ctx, qemu, "-M", "q35,accel=tcg", "-cpu", "max", "-m", "512", "-nodefaults",
		"-kernel", filepath.Join(dir, kernelName), "-initrd", filepath.Join(dir, initrdName),
		"-append", "console=ttyS0 quiet panic=-1 cryptomgr.notests loglevel=5",
		"-no-reboot", "-display", "none", "-serial", "stdio")
	cmd.Stdout, cmd.Stderr = &console, &console
	start := time.Now()
	err := cmd.Run()
	text := strings.ReplaceAll(console.String(), "\r", "")
	if err != nil {
		t.Fatalf("run QEMU: %v\n%s", err, text)
	}
	t.Logf("from QEMU's start to its end: %v", time.Since(start).Round(time.Millisecond))
	return text
}
