package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOrigins(t *testing.T) {
	h, dir := testHost(t, "", map[string]string{
		"etc.toml":          "[hypervisor.qemu]\ndefault_memory = 300\ndefault_vcpus = 0\nimage = '/x'\nenable_annotations = ['default_.*']",
		"config.d/10.toml":  "\nhypervisor.qemu.default_memory = 400",
		"config.d/20.toml":  "[agent.kata]\nenable_debug = false",
		"config.d/99.other": "[runtime]\nenable_debug = true",
	})
	loaded, err := h.load("")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]Origin{
		"hypervisor.qemu.default_memory":     {File: dir + "/config.d/10.toml", Line: 2},
		"agent.kata.enable_debug":            {File: dir + "/config.d/20.toml", Line: 2},
		"hypervisor.qemu.enable_annotations": {File: dir + "/etc.toml", Line: 5},
	}
	if diff := cmp.Diff(files, loaded.Origins); diff != "" {
		t.Errorf("origins (-want +got):\n%s", diff)
	}
	got, err := loaded.Annotate(map[string]string{hv + "default_memory": "500"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"hypervisor.qemu.default_memory": "annotation " + hv + "default_memory",
		"hypervisor.qemu.default_vcpus":  "default",
		"agent.kata.enable_debug":        dir + "/config.d/20.toml:2",
	}
	for _, v := range got.Values() {
		if origin, ok := want[v.Key]; ok && v.Origin.String() != origin {
			t.Errorf("%s comes from %s, want %s", v.Key, v.Origin, origin)
		}
	}
	if diff := cmp.Diff(files, loaded.Origins); diff != "" {
		t.Errorf("Annotate has changed its Config's origins (-want +got):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	c, err := buildDoc("[hypervisor.qemu]\ndefault_vcpus=-1\nvirtio_fs_extra_args=['-o','x']\nvirtio_fs_queue_size=512\n[agent.kata]\ndial_timeout=7\n" +
		"[runtime]\ndisable_guest_empty_dir=false")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"hypervisor.qemu.path":                 "/usr/bin/qemu-system-x86_64",
		"hypervisor.qemu.default_vcpus":        int64(4),
		"hypervisor.qemu.default_maxvcpus":     int64(4),
		"hypervisor.qemu.virtio_fs_extra_args": []any{"-o", "x"},
		"hypervisor.qemu.virtio_fs_queue_size": int64(512),
		"hypervisor.qemu.virtio_fs_cache":      "auto",
		"agent.kata.dial_timeout":              int64(7),
		"runtime.enable_debug":                 false,
		"runtime.disable_guest_empty_dir":      false,
		"runtime.emptydir_mode":                "block-plain",
	}
	values := c.Values()
	if len(values) != len(keys) {
		t.Errorf("%d values of %d keys", len(values), len(keys))
	}
	for _, v := range values {
		if w, ok := want[v.Key]; ok {
			if diff := cmp.Diff(w, v.Value); diff != "" {
				t.Errorf("%s (-want +got):\n%s", v.Key, diff)
			}
			delete(want, v.Key)
		}
	}
	if len(want) > 0 {
		t.Errorf("not among the values: %v", want)
	}
}
