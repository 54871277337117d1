package qemu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
)

func TestPluggedMemoryIsOfTheSameMake(t *testing.T) {
	for _, tt := range []struct {
		backing hypervisor.MemoryBacking
		want    map[string]any
	}{
		{hypervisor.MemoryBacking{}, map[string]any{"qom-type": "memory-backend-memfd"}},
		{hypervisor.MemoryBacking{Prealloc: true}, map[string]any{"qom-type": "memory-backend-memfd", "prealloc": true}},
		{hypervisor.MemoryBacking{Dir: "/a,b"}, map[string]any{"qom-type": "memory-backend-file", "mem-path": "/a,b"}},
		{hypervisor.MemoryBacking{HugePageMiB: 1024}, map[string]any{
			"qom-type": "memory-backend-memfd", "hugetlb": true, "hugetlbsize": uint64(1 << 30), "prealloc": true,
		}},
	} {
		tt.want["id"], tt.want["size"], tt.want["share"] = "x.memory", uint64(128<<20), true
		add, _ := memoryObject("x", 128, tt.backing)
		if diff := cmp.Diff(tt.want, add.args); diff != "" {
			t.Errorf("%+v: %s", tt.backing, diff)
		}
	}
}

func TestFreeHugePages(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "hugepages-2048kB")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	set := func(total, free, reserved, overcommit, surplus int) {
		for name, n := range map[string]int{"nr_hugepages": total, "free_hugepages": free, "resv_hugepages": reserved,
			"nr_overcommit_hugepages": overcommit, "surplus_hugepages": surplus} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(strconv.Itoa(n)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		total, free, reserved, overcommit, surplus int
		want                                       string
	}{
		{128, 128, 0, 0, 0, ""},
		{200, 128, 1, 0, 0, "256 MiB of memory are 128 huge pages of 2 MiB, of which the host has 127 free: " +
			"reserve more there: echo 201 > " + dir + "/nr_hugepages: "},
		{0, 0, 0, 0, 0, "echo 128 > "},
		{0, 0, 0, 128, 0, ""},
		{1, 0, 0, 128, 1, "echo 129 > "},
		{1, 0, 9, 1, 9, "echo 129 > "},
	} {
		set(tt.total, tt.free, tt.reserved, tt.overcommit, tt.surplus)
		err := freeHugePages(sys, 2, 256)
		if tt.want == "" && err != nil || tt.want != "" && (!errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if err := freeHugePages(sys, 1024, 1024); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "no huge pages of 1024 MiB") {
		t.Errorf("pages of another size: %v", err)
	}
	if err := freeHugePages("/nonexistent", 0, 1); err != nil {
		t.Errorf("no huge pages wanted: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "free_hugepages"), []byte("many"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := freeHugePages(sys, 2, 256); err == nil || !strings.Contains(err.Error(), "free_hugepages") {
		t.Errorf("a strange count: %v", err)
	}
}

func TestDisksAreDealtOut(t *testing.T) {
	for _, tt := range []struct {
		threads uint32
		driver  string
		at      int
		want    any
	}{
		{0, "virtio-blk-pci", 1, nil},
		{1, "virtio-blk-pci", 7, "pod.iothread.0"},
		{3, "virtio-blk-pci", 7, "pod.iothread.1"},
		{3, "virtio-scsi-pci", 2, "pod.iothread.2"},
		{3, "scsi-hd", 2, nil},
		{3, "virtio-net-pci", 2, nil},
	} {
		device := map[string]any{"driver": tt.driver}
		(&VM{spec: hypervisor.Spec{DiskThreads: tt.threads}}).onThread(device, tt.at)
		if device["iothread"] != tt.want {
			t.Errorf("%+v: %v", tt, device)
		}
	}
}
