package main

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"

	"github.com/katabox/katabox/guest-image/internal/elftest"
)

// contents reads an archive with another reader than the one that wrote it.
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

func TestArchiveContents(t *testing.T) {
	opts := testOptions(t)
	mustBuild(t, opts)
	got := contents(t, get(t, opts.out, initrdName))

	dir := "lib/modules/" + testRelease + "/kernel/"
	want := map[string]string{
		"init":        string(get(t, opts.agent)),
		"dev/console": "", "dev/null": "",
		"etc/katabox/modules": "boot virtio /" + dir + "virtio.ko\n" +
			"boot virtio_pci /" + dir + "virtio_pci.ko\n" +
			"boot vmw_vsock_virtio_transport /" + dir + "vmw_vsock_virtio_transport.ko\n" +
			"boot virtiofs /" + dir + "virtiofs.ko\n" +
			"boot overlay /" + dir + "overlay.ko\n",
		dir + "virtio.ko":     string(elftest.Module("name=virtio")),
		dir + "virtio_pci.ko": string(elftest.Module("name=virtio_pci", "depends=virtio")), // unsigned
	}
	for _, name := range bootModules[1:] {
		want[dir+name+".ko"] = string(elftest.Module("name="+name, "depends=virtio"))
	}
	for _, name := range demandModules {
		want[dir+name+".ko"] = string(elftest.Module("name="+name, "depends=virtio"))
		want["etc/katabox/modules"] += "demand " + name + " /" + dir + name + ".ko\n"
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
