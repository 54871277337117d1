package qemu

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
)

// guestDir is removed by TestMain.
var guestDir string

// guestImage builds kernel and initramfs of testguest once for all tests: with
// guest-image, which takes the kernel from Debian's archive or its cache.
var guestImage = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "qemu-guest-")
	if err != nil {
		return "", err
	}
	guestDir = dir
	root, err := filepath.Abs("../..")
	if err != nil {
		return dir, err
	}
	init := filepath.Join(dir, "init")
	for _, args := range [][]string{
		{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", init, "./hypervisor/qemu/internal/testguest"},
		{"run", "./guest-image", "-agent", init, "-out", dir, "-compress", "none"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, &exec.Error{Name: string(out), Err: err}
		}
	}
	return dir, nil
})

// guestSpec is a machine with testguest.
func guestSpec(t testing.TB) hypervisor.Spec {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a machine: left out with -short")
	}
	dir, err := guestImage()
	if err != nil {
		t.Skip("needs a guest image:", err)
	}
	spec := testSpec(t, filepath.Join(dir, "vmlinux"))
	spec.Initrd = filepath.Join(dir, "initrd.img")
	spec.MemoryMiB = 256
	spec.KernelParams = DefaultKernelParams(spec.Accel)
	return spec
}

// awaitConsole waits until the guest has printed all of the lines.
func awaitConsole(t testing.TB, vm *VM, lines ...string) {
	t.Helper()
	ctx := testContext(t)
	for _, line := range lines {
		for !strings.Contains(vm.ConsoleTail(), line+"\n") {
			select {
			case <-vm.Done():
				t.Fatalf("the machine ended: %v; console:\n%s", vm.Err(), vm.ConsoleTail())
			case <-ctx.Done():
				t.Fatalf("the guest does not print %q; console:\n%s", line, vm.ConsoleTail())
			case <-time.After(time.Millisecond): // the console gives no other signal
			}
		}
	}
}

// ready is what testguest prints when it has loaded its drivers.
const ready = "testguest: ready"

// saw returns what testguest prints about an interface.
func saw(action string, path hypervisor.PCIPath, address string) string {
	return fmt.Sprintf("testguest: %s %s %s", action, path, address)
}

// guestHas reports whether testguest's image has a kernel module.
func guestHas(t testing.TB, module string) bool {
	t.Helper()
	dir, err := guestImage()
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(filepath.Join(dir, "initrd.img"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(image, []byte("/"+module+".ko"))
}
