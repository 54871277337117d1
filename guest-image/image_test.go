package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"

	"github.com/katabox/katabox/guest-image/internal/debtest"
	"github.com/katabox/katabox/guest-image/internal/elftest"
	"github.com/katabox/katabox/guest-image/internal/modules"
)

// contents reads an archive with a reader independent of the writer.
func contents(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	r := cpio.Newc.Reader(bytes.NewReader(archive))
	for {
		rec, err := r.ReadRecord()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(io.NewSectionReader(rec, 0, int64(rec.FileSize)))
		if err != nil {
			t.Fatal(err)
		}
		out[rec.Name] = string(data)
	}
}

// unzip reads a zip file into files below its own path.
func unzip(t *testing.T, path string, files map[string]string) {
	t.Helper()
	r, err := zip.NewReader(strings.NewReader(files[path]), int64(len(files[path])))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.File {
		data, err := fs.ReadFile(r, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		files[path+"/"+f.Name] = string(data)
	}
	delete(files, path)
}

func TestArchiveContents(t *testing.T) {
	opts := testOptions(t)
	mustBuild(t, opts)
	got := contents(t, get(t, opts.out, initrdName))

	release := "lib/modules/" + testRelease
	unzip(t, release+"/modules.zip", got)

	dir := release + "/kernel/"
	want := map[string]string{
		"init":        string(get(t, opts.agent)),
		"dev/console": "", "dev/null": "",
		"etc/katabox/modules": "boot virtio /" + dir + "virtio.ko -\nboot virtio_pci /" + dir + "virtio_pci.ko virtio\n",
		dir + "virtio.ko":     string(elftest.Module("name=virtio")),
		dir + "virtio_pci.ko": string(elftest.Module("name=virtio_pci", "depends=virtio")), // unsigned
	}
	for _, group := range []struct {
		when, dir string
		names     []string
	}{{"boot", dir, bootModules[1:]}, {"demand", dir, demandModules}, {"kernel", release + "/modules.zip/", kernelModules}} {
		for _, name := range group.names {
			path := group.dir + name + ".ko"
			want[path] = string(testModule(name))
			want["etc/katabox/modules"] += group.when + " " + name + " /" + path + " virtio ask-" + name + "\n"
		}
	}
	for _, name := range []string{
		"dev", "etc", "etc/katabox", "lib", "lib/modules", "lib/modules/" + testRelease,
		"lib/modules/" + testRelease + "/kernel", "proc", "run", "sys", "tmp",
	} {
		want[name] = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A module that is named is in the image with what it needs, and the kernel may request
// it; one that is there anyway, or part of the kernel, changes nothing.
func TestNamedModules(t *testing.T) {
	opts := testOptions(t)
	kernel := "lib/modules/" + testRelease + "/kernel/"
	opts.debs = []string{debtest.Build(t, withFiles(testPackageFiles(t), map[string][]byte{
		kernel + "nfs.ko":    elftest.Module("name=nfs", "depends=sunrpc,virtio", "alias=fs-nfs4"),
		kernel + "sunrpc.ko": elftest.Module("name=sunrpc"),
	}))}
	mustBuild(t, opts)
	before := contents(t, get(t, opts.out, initrdName))["etc/katabox/modules"]
	opts.modules = []string{"nfs", "xfs", "virtio-net", "ext4"}
	mustBuild(t, opts)
	got := contents(t, get(t, opts.out, initrdName))
	archive := "lib/modules/" + testRelease + "/modules.zip"
	unzip(t, archive, got)
	added := "kernel sunrpc /" + archive + "/sunrpc.ko -\nkernel nfs /" + archive + "/nfs.ko sunrpc,virtio fs-nfs4\n"
	want := "builtin ext4 - -\n" + before + added
	if diff := cmp.Diff(want, got["etc/katabox/modules"]); diff != "" {
		t.Error(diff)
	}
	if got[archive+"/nfs.ko"] == "" || got[archive+"/sunrpc.ko"] == "" {
		t.Error("the image lacks a module that it lists")
	}
}

func withFiles(files, more map[string][]byte) map[string][]byte {
	maps.Copy(files, more)
	return files
}

// The list marks dependencies that a module can do without, and names no module
// that is not in the image.
func TestListNamesNeeds(t *testing.T) {
	mods := []*modules.Module{
		{Info: modules.Info{Name: "sum", Aliases: []string{"sums"}}, Path: "sum.ko"},
		{Info: modules.Info{Name: "late"}},
		{Info: modules.Info{Name: "user", Depends: []string{"builtin"}, SoftPre: []string{"sums", "late", "gone"}}},
	}
	set, err := modules.NewSet(mods, []byte("builtin.ko\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := chosen{set: set, groups: []group{
		{when: "boot", mods: mods[:1]},
		{when: "kernel", mods: []*modules.Module{mods[2], mods[1]}, archive: "all.zip"},
	}}
	want := "boot sum /sum.ko - sums\nkernel user /all.zip/user.ko ?sum\nkernel late /all.zip/late.ko -\n"
	if diff := cmp.Diff(want, string(c.list())); diff != "" {
		t.Error(diff)
	}
}

func TestAsked(t *testing.T) {
	for alias, want := range map[string]bool{
		"rtnl-link-bridge": true, "nft-chain-2-nat": true, "ip_set_hash:ip,port": true, "char-major-10-200": true,
		"net-pf-16-proto-16-family-wireguard": true, "fs-erofs": true,
		"devname:net/tun": false, "block-major-7-*": false, "pci:v00001AF4d*sv*": false, "virtio:d00000001v*": false,
		"two words": false, "": false,
	} {
		if got := asked(alias); got != want {
			t.Errorf("asked(%q) is %v", alias, got)
		}
	}
}
