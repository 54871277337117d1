package vsock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu"
)

// TestQMP attaches the device over QMP, to a machine that is still paused and
// to one whose guest has long been running.
func TestQMP(t *testing.T) {
	for name, hot := range map[string]bool{"paused": false, "running": true} {
		t.Run(name, func(t *testing.T) {
			tr, err := Open(t.Context(), Options{VhostPath: "/nonexistent"})
			must(t, err)
			defer tr.Close()
			vm := launch(t, hot)
			defer func() { must(t, vm.Stop(context.Background())) }()
			if hot {
				must(t, vm.Resume(t.Context()))
				for !strings.Contains(vm.ConsoleTail(), "testguest: ready") {
					select {
					case <-vm.Done():
						t.Fatal(vm.Err(), vm.ConsoleTail())
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
			start := time.Now()
			must(t, tr.Attach(t.Context(), vm))
			if !hot {
				must(t, vm.Resume(t.Context()))
			}
			if err := echoOnce(t, tr, make([]byte, 1<<20)); err != nil {
				t.Fatal(err, vm.ConsoleTail())
			}
			t.Logf("1 MiB echoed %v after the attach began", time.Since(start))
			must(t, vm.Stop(t.Context()))
			if _, err := tr.Dial(t.Context(), guestEcho); !errors.Is(err, ErrGone) {
				t.Errorf("dial after the end: %v", err)
			}
		})
	}
}

// launch makes the machine. For devices that come to a running guest it hides
// qboot from hypervisor/qemu: with that firmware a bridge without devices gets
// no memory window, and Linux then cannot place theirs (seen as "can't assign;
// no space"). SeaBIOS reserves one.
func launch(t *testing.T, hot bool) hypervisor.VM {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a machine: left out with -short")
	}
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("needs the package qemu-system-x86:", err)
	}
	dir, err := image()
	if err != nil {
		t.Skip("needs a guest image:", err)
	}
	if hot {
		link := filepath.Join(t.TempDir(), "bin", "qemu-system-x86_64")
		must(t, os.Mkdir(filepath.Dir(link), 0o755))
		must(t, os.Symlink(path, link))
		path = link
	}
	accel, _ := qemu.DetectAccel(qemu.Host{})
	vm, err := qemu.New(qemu.Options{}).Launch(t.Context(), hypervisor.Spec{
		ID: "vsock-test", Path: path, MachineType: "q35", Accel: accel,
		VCPUs: 1, MaxVCPUs: 1, MemoryMiB: 256,
		Kernel: filepath.Join(dir, "vmlinux"), Initrd: filepath.Join(dir, "initrd.img"),
		KernelParams: qemu.DefaultKernelParams(accel),
	})
	must(t, err)
	return vm
}
