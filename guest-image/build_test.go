package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/guest-image/internal/debtest"
	"github.com/katabox/katabox/guest-image/internal/elftest"
)

const testRelease = "6.1.0-test"

// testPackage builds a kernel package with every requested module, all of them
// tiny.
func testPackage(t *testing.T) string {
	t.Helper()
	return debtest.Build(t, testPackageFiles(t))
}

func testPackageFiles(t *testing.T) map[string][]byte {
	t.Helper()
	modules := "lib/modules/" + testRelease + "/"
	files := map[string][]byte{
		"boot/vmlinuz-" + testRelease: testBzImage(t, elftest.PVHNote(0x1000850)),
		modules + "modules.builtin":   []byte("kernel/fs/ext4/ext4.ko\n"),
		modules + "kernel/unused.ko":  elftest.Module("name=unused"),
		modules + "kernel/virtio.ko":  elftest.Module("name=virtio"),
		modules + "kernel/virtio_pci.ko": append(elftest.Module("name=virtio_pci", "depends=virtio"),
			"\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00~Module signature appended~\n"...),
	}
	for _, name := range slices.Concat(bootModules[1:], demandModules, kernelModules) {
		files[modules+"kernel/"+name+".ko"] = testModule(name)
	}
	return files
}

// testModule is a module like those in testPackage, with one alias that the
// kernel requests and one that it does not.
func testModule(name string) []byte {
	return elftest.Module("name="+name, "depends=virtio", "softdep=pre: soft_"+name, "alias=ask-"+name, "alias=pci:v*")
}

func testBzImage(t *testing.T, note []byte) []byte {
	t.Helper()
	vmlinux := elftest.Kernel(
		elftest.Segment{Type: elf.PT_LOAD, Paddr: 0x1000000, Data: []byte("code")},
		elftest.Segment{Type: elf.PT_NOTE, Paddr: 0x1000000, Data: note})
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(vmlinux); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return elftest.BzImage{SetupSects: 4, Payload: packed.Bytes()}.Bytes()
}

// testOptions returns flags for a build from testPackage.
func testOptions(t *testing.T) options {
	t.Helper()
	dir := t.TempDir()
	opts := options{
		agent: filepath.Join(dir, "kata-agent"), out: filepath.Join(dir, "out"),
		cache: filepath.Join(dir, "cache"), debs: []string{testPackage(t)}, compress: compressNone,
	}
	put(t, opts.agent, elftest.Static("agent 1"))
	return opts
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// runBuild builds and returns what was printed.
func runBuild(t *testing.T, opts options) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := build(ctx, opts, newReport(&out))
	return out.String(), err
}

// mustBuild builds and reports whether anything was done.
func mustBuild(t *testing.T, opts options) (built bool) {
	t.Helper()
	out, err := runBuild(t, opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return !strings.Contains(out, "up to date")
}

func TestBuildTwiceGivesTheSameBytes(t *testing.T) {
	for _, compress := range []string{compressNone, compressLZ4} {
		t.Run(compress, func(t *testing.T) {
			opts := testOptions(t)
			opts.compress = compress
			other := opts
			other.out = filepath.Join(t.TempDir(), "deeper", "out")
			mustBuild(t, opts)
			mustBuild(t, other)
			for _, name := range []string{kernelName, initrdName} {
				if !bytes.Equal(get(t, opts.out, name), get(t, other.out, name)) {
					t.Errorf("%s differs", name)
				}
			}
		})
	}
}

func TestBuildPrintsEachStep(t *testing.T) {
	out, err := runBuild(t, testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"[1/5] agent", "[2/5] package", "[3/5] kernel " + testRelease, "PVH entry 0x1000850",
		"[4/5] modules: 5 boot (", " 14 demand (", " kernel (", "[5/5] initrd", "vmlinux", "done in",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *options)
		want   string
	}{
		{"no agent", func(t *testing.T, o *options) { o.agent += ".gone" }, "make agent"},
		{"agent is a directory", func(t *testing.T, o *options) { o.agent = t.TempDir() }, "read the agent"},
		{"agent is a script", func(t *testing.T, o *options) { put(t, o.agent, []byte("#!/bin/sh\n")) }, "read agent"},
		{"agent is dynamic", func(t *testing.T, o *options) {
			put(t, o.agent, elftest.Kernel(elftest.Segment{Type: elf.PT_INTERP, Data: []byte("/lib/ld.so")}))
		}, "linked dynamically"},
		{"agent of another machine", func(t *testing.T, o *options) {
			data := elftest.Static("agent")
			data[18] = byte(elf.EM_AARCH64)
			put(t, o.agent, data)
		}, "EM_AARCH64"},
		{"no package", func(t *testing.T, o *options) { o.debs = []string{o.debs[0] + ".gone"} }, "read package"},
		{"broken package", func(t *testing.T, o *options) { put(t, o.debs[0], []byte("!<arch>")) }, "dpkg-deb"},
		{"meta package", change(func(files map[string][]byte) { clear(files) }), "no kernel with modules"},
		{"two kernels", change(func(files map[string][]byte) { files["boot/vmlinuz-2"] = nil }), "second kernel"},
		{"a module is missing", change(func(files map[string][]byte) {
			delete(files, "lib/modules/"+testRelease+"/kernel/overlay.ko")
		}), "no module overlay"},
		{"a named module is missing", func(_ *testing.T, o *options) { o.modules = []string{"unused", "nfs", "ext4", "sctp"} },
			"kernel " + testRelease + " has no module nfs sctp: want names as those of modprobe(8)"},
		{"a module is broken", change(func(files map[string][]byte) {
			files["lib/modules/"+testRelease+"/kernel/unused.ko"] = []byte("\x7fELF")
		}), "unused.ko"},
		{"no PVH", func(t *testing.T, o *options) {
			files := testPackageFiles(t)
			files["boot/vmlinuz-"+testRelease] = testBzImage(t, elftest.Note("Xen", 6, nil))
			o.debs = []string{debtest.Build(t, files)}
		}, "no Xen PVH note"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := testOptions(t)
			tc.change(t, &opts)
			out, err := runBuild(t, opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q\n%s", err, tc.want, out)
			}
			if _, err := os.Stat(filepath.Join(opts.out, stampName)); err == nil {
				t.Error("a failed build left a stamp")
			}
		})
	}
}

// Debian 14 has a kernel's files in three packages.
func TestKernelInSeveralPackages(t *testing.T) {
	opts := testOptions(t)
	whole := opts
	whole.out = filepath.Join(t.TempDir(), "whole")
	mustBuild(t, whole)
	parts := map[string]map[string][]byte{"base": {}, "binary": {}, "modules": {}}
	for name, data := range testPackageFiles(t) {
		switch {
		case strings.HasPrefix(name, "boot/"):
			parts["binary"]["usr/lib/modules/"+testRelease+"/vmlinuz"] = data
		case strings.HasSuffix(name, ".ko"):
			parts["modules"]["usr/"+name] = data
		default:
			parts["base"]["usr/"+name] = data
		}
	}
	opts.debs = nil
	for _, name := range []string{"base", "binary", "modules"} {
		opts.debs = append(opts.debs, debtest.Build(t, parts[name]))
	}
	if !mustBuild(t, opts) || mustBuild(t, opts) {
		t.Error("the image was not built once")
	}
	for _, name := range []string{kernelName, initrdName} {
		if !bytes.Equal(get(t, whole.out, name), get(t, opts.out, name)) {
			t.Errorf("%s is another one than from a single package", name)
		}
	}
	touch(t, opts.debs[2])
	if mustBuild(t, opts) {
		t.Error("built again from a file that was touched")
	}
	opts.debs = opts.debs[:2]
	if _, err := runBuild(t, opts); err == nil || !strings.Contains(err.Error(), "linux-modules") {
		t.Errorf("without the modules: %v", err)
	}
}

// change returns a setup for a build from a package with edited files.
func change(edit func(map[string][]byte)) func(*testing.T, *options) {
	return func(t *testing.T, o *options) {
		files := testPackageFiles(t)
		edit(files)
		o.debs = []string{debtest.Build(t, files)}
	}
}

// A newer kernel has dropped one optional module and built in another.
func TestOptionalModulesMayBeAbsent(t *testing.T) {
	opts := testOptions(t)
	files := testPackageFiles(t)
	dir := "lib/modules/" + testRelease + "/"
	delete(files, dir+"kernel/nft_objref.ko")
	delete(files, dir+"kernel/xt_u32.ko")
	files[dir+"modules.builtin"] = []byte("kernel/net/netfilter/xt_u32.ko\n")
	opts.debs = []string{debtest.Build(t, files)}
	out, err := runBuild(t, opts)
	if err != nil {
		t.Fatal(err)
	}
	list := contents(t, get(t, opts.out, initrdName))["etc/katabox/modules"]
	if !strings.HasPrefix(list, "builtin xt_u32 - -\nboot ") {
		t.Errorf("the module that is built in is not listed first: %.100q", list)
	}
	if !strings.Contains(out, "not in this kernel: nft_objref\n") {
		t.Errorf("the absent module is not named once: %s", out)
	}
}

func TestBootModulesMustExist(t *testing.T) {
	opts := testOptions(t)
	files := testPackageFiles(t)
	delete(files, "lib/modules/"+testRelease+"/kernel/virtiofs.ko")
	opts.debs = []string{debtest.Build(t, files)}
	if out, err := runBuild(t, opts); err == nil || !strings.Contains(err.Error(), "no module virtiofs") {
		t.Errorf("error %v\n%s", err, out)
	}
}
