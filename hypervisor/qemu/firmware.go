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
