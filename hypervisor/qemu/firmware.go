package qemu

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// firmware returns the spec's, otherwise for TCG qboot, the minimal firmware
// that QEMU ships for its microvm board, if it is found beside QEMU's
// executable; empty is QEMU's default, SeaBIOS. A TCG guest is up 50 ms earlier
// with qboot. KVM guests keep SeaBIOS: it costs little there, and qboot does
// not set the MTRRs.
//
// With qboot Linux lays out PCI: a bridge that has a device at boot gets room
// for more, an empty one gets none, and a device that is hot-plugged there gets
// no resources. A pod's bridge always has its share and its vsock.
func firmware(spec hypervisor.Spec) string {
	if spec.Firmware != "" {
		return spec.Firmware
	}
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

// checkFirmware refuses the combination of UEFI firmware and an ELF kernel,
// which would end in the UEFI shell while the agent never answers: the firmware
// starts QEMU's kernel as an EFI program, which a bzImage is and an ELF file is
// not.
func checkFirmware(spec hypervisor.Spec) error {
	if spec.Firmware == "" {
		return nil
	}
	kernel, err := head(spec.Kernel)
	if err != nil {
		return fmt.Errorf("inspect kernel: %w", err)
	}
	image, err := head(spec.Firmware)
	if err != nil {
		return fmt.Errorf("inspect firmware: %w", err)
	}
	// UEFI Platform Initialization Specification 1.7, volume 3, section 3.2.1:
	// a firmware volume's header has its signature after 40 bytes.
	const signatureAt = 40
	uefi := len(image) > signatureAt && bytes.HasPrefix(image[signatureAt:], []byte("_FVH"))
	if uefi && bytes.HasPrefix(kernel, []byte("\x7fELF")) {
		return fmt.Errorf("firmware %s is UEFI, which cannot start the ELF kernel %s: want a bzImage (vmlinuz): %w",
			spec.Firmware, spec.Kernel, errdefs.ErrInvalidArgument)
	}
	return nil
}

// head returns a file's first bytes.
func head(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64))
}
