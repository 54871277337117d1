package qemu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// existing returns a file that matches a pattern, by the first of them if there are
// several, or skips the test.
func existing(t *testing.T, patterns ...string) string {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) > 0 {
			return files[0]
		}
	}
	t.Skipf("this test needs %s", strings.Join(patterns, " or "))
	return ""
}

func TestFirmwareOfTheSpec(t *testing.T) {
	spec := hypervisor.Spec{Accel: hypervisor.AccelTCG, Path: "/usr/bin/qemu-system-x86_64", Firmware: "/f"}
	if got := firmware(spec); got != "/f" {
		t.Errorf("firmware %q", got)
	}
}

func TestFirmwareIsChecked(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	elf, bzImage := write("vmlinux", "\x7fELF"), write("vmlinuz", "MZ")
	uefi, bios, short := write("uefi", strings.Repeat("\x00", 40)+"_FVH"), write("bios", strings.Repeat("\x00", 100)), write("short", "")
	for _, tt := range []struct {
		firmware, kernel string
		ok               bool
	}{{uefi, elf, false}, {uefi, bzImage, true}, {bios, elf, true}, {short, elf, true}, {"", elf, true}} {
		err := checkFirmware(hypervisor.Spec{Firmware: tt.firmware, Kernel: tt.kernel})
		if (err == nil) != tt.ok || err != nil && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "want a bzImage")) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A guest boots with a firmware other than QEMU's default for the board.
func TestBoardBootsWithFirmware(t *testing.T) {
	spec := guestSpec(t)
	spec.Firmware = existing(t, "/usr/share/seabios/bios-256k.bin")
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	up(t, vm)
	guest.echo(t)
}

// A guest boots with UEFI, if OVMF and a suitable kernel are installed, and
// devices can be hot-plugged behind its bridge.
func TestUEFI(t *testing.T) {
	ovmf := existing(t, "/usr/share/ovmf/OVMF.fd")
	pkg := existing(t, "../../build/cache/linux-binary-*.deb", "../../build/cache/linux-image-*.deb")
	spec := guestSpec(t)
	dir := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "-x", pkg, dir).CombinedOutput(); err != nil {
		t.Skipf("unpack kernel: %v: %s", err, out)
	}
	spec.Firmware = ovmf
	if _, err := New(Options{}).Launch(testContext(t), spec); err == nil || !strings.Contains(err.Error(), "want a bzImage") {
		t.Errorf("an ELF kernel: %v", err)
	}
	spec.Kernel = existing(t, filepath.Join(dir, "boot/vmlinuz-*"), filepath.Join(dir, "usr/lib/modules/*/vmlinuz"))
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	up(t, vm)
	guest.echo(t)
	d := testDisk(t, "later", hypervisor.VirtioBlk)
	attachDisk(t, vm, d)
	awaitConsole(t, vm, sawDisk(t, vm, d))
}
