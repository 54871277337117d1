package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
)

func TestAttachMachineDevices(t *testing.T) {
	const (
		addFD  = `add-fd {"fdset-id":1} +file`
		object = `object-add {"filename":"/dev/fdset/1","id":"rng-x","qom-type":"rng-random"}`
		rng    = `device_add {"addr":"0x1","bus":"pod","disable-legacy":"on","driver":"virtio-rng-pci","id":"x","rng":"rng-x"}`
		take   = `remove-fd {"fdset-id":1}`
	)
	for _, tt := range []struct {
		name   string
		device hypervisor.Device
		refuse string
		want   []string
	}{
		{"rng", hypervisor.RNG{ID: "x", File: devNull(t)}, "", []string{addFD, object, rng}},
		{"rng, no source", hypervisor.RNG{ID: "x", File: devNull(t)}, "object-add", []string{addFD, object, take}},
		{"rng, no device", hypervisor.RNG{ID: "x", File: devNull(t)}, "device_add",
			[]string{addFD, object, rng, `object-del {"id":"rng-x"}`, take}},
		{"balloon", hypervisor.Balloon{ID: "x"}, "", []string{
			`device_add {"addr":"0x1","bus":"pod","deflate-on-oom":true,"disable-legacy":"on","driver":"virtio-balloon-pci",` +
				`"free-page-reporting":true,"id":"x"}`,
		}},
	} {
		vm := script(t, func(command string) string {
			if command == tt.refuse {
				return "out of luck"
			}
			return ""
		})
		if err := vm.Attach(testContext(t), tt.device); (err != nil) != (tt.refuse != "") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, vm.sent()); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestRNGChecksItsFile(t *testing.T) {
	vm := script(t, refuseNothing)
	writable, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer writable.Close()
	for _, file := range []*os.File{nil, writable} {
		if err := vm.Attach(testContext(t), hypervisor.RNG{ID: "x", File: file}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", file, err)
		}
	}
	if got := vm.sent(); len(got) != 0 {
		t.Errorf("QEMU was asked: %q", got)
	}
}

// A dump for which the file system has no room is not begun.
func TestRoomForDump(t *testing.T) {
	dir := t.TempDir()
	if err := roomFor(dir, 1); err != nil {
		t.Error(err)
	}
	if err := roomFor(dir, 1<<60); err == nil || !strings.Contains(err.Error(), "no room for dump of 1099511627776 MiB: "+dir) {
		t.Errorf("an exbibyte: %v", err)
	}
	if err := roomFor("/nonexistent", 1); err == nil {
		t.Error("no directory is no error")
	}
}
