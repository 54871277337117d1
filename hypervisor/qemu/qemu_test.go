package qemu

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
)

// qemuPath finds QEMU or skips the test.
func qemuPath(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skipf("this test needs QEMU: %v", err)
	}
	return path
}

func testSpec(t testing.TB, kernel string) hypervisor.Spec {
	t.Helper()
	return hypervisor.Spec{
		ID:        "test",
		Path:      qemuPath(t),
		Accel:     hypervisor.AccelTCG,
		VCPUs:     1,
		MemoryMiB: 64,
		Kernel:    kernel,
	}
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// launch starts a machine that is gone when the test ends.
func launch(t testing.TB, spec hypervisor.Spec) *VM {
	t.Helper()
	vm, err := New(Options{}).Launch(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Stop(testContext(t)); err != nil {
			t.Error(err)
		}
	})
	return vm.(*VM)
}

func awaitDone(t testing.TB, vm hypervisor.VM) {
	t.Helper()
	select {
	case <-vm.Done():
	case <-testContext(t).Done():
		t.Fatalf("the machine did not end; console:\n%s", vm.ConsoleTail())
	}
}

func TestGuestEndsByItself(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		end          []byte
	}{
		{"power-off", "guest-shutdown", powerOff},
		{"reset, as after a panic", "guest-reset", reset},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm := launch(t, testSpec(t, testKernel(t, "last words\r\n", tt.end)))
			if err := vm.Err(); err != nil {
				t.Fatalf("Err of a paused machine: %v", err)
			}
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			awaitDone(t, vm)
			if err := vm.Err(); !errors.Is(err, hypervisor.ErrPowerOff) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("Err: %v", err)
			}
			if got := vm.ConsoleTail(); !strings.HasSuffix(got, "last words\n") {
				t.Errorf("console: %q", got)
			}
		})
	}
}
