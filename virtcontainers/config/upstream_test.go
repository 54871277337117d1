package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// upstreamFile stands in for the configuration-qemu.toml that Kata Containers
// ships: every key with Kata's default.
const upstreamFile = "testdata/configuration-qemu.toml"

// kataDefaults are those of Kata's defaults that differ from ours.
var kataDefaults = map[string]any{
	"hypervisor.qemu.kernel":                       "/usr/share/kata-containers/vmlinux.container",
	"hypervisor.qemu.image":                        "/usr/share/kata-containers/kata-containers.img",
	"hypervisor.qemu.initrd":                       "",
	"hypervisor.qemu.cpu_features":                 "pmu=off",
	"hypervisor.qemu.virtio_fs_daemon":             "/usr/libexec/virtiofsd",
	"hypervisor.qemu.valid_virtio_fs_daemon_paths": []any{"/usr/libexec/virtiofsd"},
	"hypervisor.qemu.seccompsandbox":               "",
	"hypervisor.qemu.rootless":                     false, // in Kata's own file it is a comment
	"hypervisor.qemu.virtio_fs_extra_args":         []any{"--thread-pool-size=1", "--announce-submounts"},
}

// renderUpstream writes a file with every key of every state.
func renderUpstream() string {
	var b strings.Builder
	b.WriteString("# Every key that is known, with Kata Containers' default. Written by go test -update.\n")
	for _, table := range tableNames {
		fmt.Fprintf(&b, "\n[%s]\n", table)
		for _, k := range slices.Concat(keys, withoutEffect) {
			def, differs := kataDefaults[k.name]
			if !differs {
				def = k.def
			}
			if in, name := split(k); in == table {
				fmt.Fprintf(&b, "%s = %s\n", name, tomlValue(def))
			}
		}
	}
	return b.String()
}

func TestUpstreamsFileIsTaken(t *testing.T) {
	golden(t, upstreamFile, renderUpstream())
	h, _ := testHost(t, "", nil)
	got, err := h.load(upstreamFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range got.Warnings {
		// There is a warning when the guest boots something other than what the
		// file says, or is less confined than it could be.
		if !strings.Contains(w, "hypervisor.qemu.image is not implemented yet and is ignored") && !strings.Contains(w, "QEMU runs as root") {
			t.Errorf("warning about a default: %s", w)
		}
	}
	if got.Hypervisor.VirtioFS.Daemon != "/usr/libexec/virtiofsd" || got.Hypervisor.CPUFeatures != "pmu=off" {
		t.Errorf("not what the file says: %+v", got.Hypervisor)
	}
}

// Every key without effect says so when it is set to anything else.
func TestKeysWithoutEffectSaySo(t *testing.T) {
	for _, k := range withoutEffect {
		other := any("other")
		switch def := k.def.(type) {
		case bool:
			other = !def
		case int64:
			other = def + 1
		case []any:
			other = []any{"other"}
		}
		got, err := buildDoc(k.name + " = " + tomlValue(other))
		if k.unsafe {
			if err == nil || !strings.Contains(err.Error(), k.name+" = "+show(other)+" is refused: "+k.doc) {
				t.Errorf("%s: %v", k.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", k.name, err)
			continue
		}
		told := strings.Join(got.Warnings, "\n")
		if !strings.Contains(told, k.name) || k.state == refused && !strings.Contains(told, k.doc) {
			t.Errorf("%s is silently ignored: %q", k.name, told)
		}
	}
}

// Every annotation of a key without effect is a warning or an error, and the
// message for a disabled one says how to enable it.
func TestAnnotationsWithoutEffectSaySo(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(annotationsByName)) {
		k := annotationsByName[name].key
		if k.state == effective {
			continue
		}
		_, got, err := annotate(t, everything, map[string]string{name: "1"})
		switch {
		case k.state == refused && (err == nil || !strings.Contains(err.Error(), k.doc)):
			t.Errorf("%s: %v", name, err)
		case k.state == planned && (err != nil || !strings.Contains(strings.Join(got.Warnings, "\n"), name)):
			t.Errorf("%s: %v", name, err)
		}
	}
}
