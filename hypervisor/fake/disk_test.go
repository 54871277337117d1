package fake_test

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
)

// PCI slots and SCSI targets are numbered separately.
func TestLocate(t *testing.T) {
	vm := launch(t, new(fake.Monitor))
	for _, d := range []hypervisor.Disk{
		{ID: "a", Bus: hypervisor.VirtioBlk}, {ID: "b", Bus: hypervisor.VirtioSCSI}, {ID: "c", Bus: hypervisor.VirtioSCSI},
	} {
		if err := vm.Attach(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]hypervisor.Location{
		"a": {PCIPath: "01/01"},
		"b": {PCIPath: "02/01", LUN: &hypervisor.LUN{Target: 1}},
		"c": {PCIPath: "02/01", LUN: &hypervisor.LUN{Target: 2}},
	} {
		got, err := vm.Locate(id)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", id, err, diff)
		}
		path, err := vm.PCIPath(id)
		if (want.LUN == nil) != (path == want.PCIPath) || errdefs.IsFailedPrecondition(err) != (want.LUN != nil) {
			t.Errorf("PCIPath of %s: %q, %v", id, path, err)
		}
	}
	if _, err := vm.Locate("d"); !errdefs.IsNotFound(err) {
		t.Errorf("a device that is not there: %v", err)
	}
}

func TestGrowDisk(t *testing.T) {
	vm := launch(t, new(fake.Monitor))
	for _, d := range []hypervisor.Device{hypervisor.Disk{ID: "disk"}, hypervisor.NIC{ID: "nic"}} {
		if err := vm.Attach(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := vm.GrowDisk(t.Context(), "disk", 7); err != nil || vm.Grown("disk") != 7 {
		t.Errorf("grown to %d, %v", vm.Grown("disk"), err)
	}
	for _, id := range []string{"nic", "none"} {
		if err := vm.GrowDisk(t.Context(), id, 7); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
