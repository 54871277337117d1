package qemu

import (
	"os"
	"path/filepath"

	"github.com/katabox/katabox/hypervisor"
)

// firmware finds qboot, the minimal firmware that QEMU ships for its microvm
// board, beside QEMU's executable; empty is QEMU's default, SeaBIOS. A TCG
// guest is up 50 ms earlier with qboot. KVM guests keep SeaBIOS: it costs
// little there, and qboot leaves the memory type registers unset.
//
// With qboot it is Linux that lays out PCI: a bridge that has a device at boot
// gets room for more, an empty one gets none, and a device that is added to it
// later finds no place. A pod's bridge always has its share and its vsock.
func firmware(spec hypervisor.Spec) string {
	if spec.Accel != hypervisor.AccelTCG {
		return ""
	}
	prefix := filepath.Dir(filepath.Dir(spec.Path))
	for _, dir := range []string{"share/qemu", "share/kata-qemu/qemu"} {
		path := filepath.Join(prefix, dir, "qboot.rom")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
