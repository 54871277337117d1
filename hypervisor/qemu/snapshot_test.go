package qemu

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// A machine that is saved runs on, and others continue from what was saved, with
// other devices at the same places.
func TestSnapshot(t *testing.T) {
	spec := withMemory(guestSpec(t), hypervisor.MemoryDIMM)
	spec.MaxVCPUs = 2
	vm := launch(t, spec)
	guest := vsockTo(t, vm) // its slot stays empty in the saved machine
	if err := vm.Attach(testContext(t), templateRNG(t)); err != nil {
		t.Fatal(err)
	}
	up(t, vm)
	guest.echo(t)
	setMemory(t, vm, 384, 384)
	setMemory(t, vm, 640, 640)
	awaitConsole(t, vm, "testguest: memory +128 MiB", "testguest: memory +256 MiB")
	setVCPUs(t, vm, 2, 2)
	if err := vm.Detach(testContext(t), "vsock0"); err != nil {
		t.Fatal(err)
	}
	layout, err := vm.Layout(testContext(t))
	want := hypervisor.Layout{Devices: map[string]hypervisor.PCIPath{"rng": "01/05"}, ModulesMiB: []uint64{128, 256}, VCPUs: 2, TSCKHz: vm.tscKHz}
	if err != nil || !reflect.DeepEqual(layout, want) {
		t.Fatalf("layout %v, %v, want %v", layout, err, want)
	}
	state := saveAll(t, vm)
	again := vsockTo(t, vm)
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	again.echo(t)
	for _, id := range []string{"one", "two"} {
		t.Run(id, func(t *testing.T) {
			spec := spec
			spec.ID, spec.Awaits = id, &layout
			start := time.Now()
			copied := launch(t, spec)
			if err := copied.Attach(testContext(t), templateRNG(t)); err != nil {
				t.Fatal(err)
			}
			loadAll(t, copied, state)
			guest := vsockTo(t, copied)
			if path, err := copied.PCIPath("vsock0"); err != nil || path != "01/01" {
				t.Errorf("vsock is at %q, %v", path, err)
			}
			if err := copied.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			guest.echo(t)
			setMemory(t, copied, 640, 640)
			setVCPUs(t, copied, 2, 2)
			t.Logf("answers after %v", time.Since(start))
		})
	}
}

// saveAll saves a machine by way of a pipe.
func saveAll(t *testing.T, vm *VM) []byte {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var state bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := state.ReadFrom(r)
		read <- err
	}()
	start := time.Now()
	err = vm.SaveAll(testContext(t), w)
	_ = w.Close()
	if readErr := <-read; err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	t.Logf("saved %d MiB in %v", state.Len()>>20, time.Since(start))
	return state.Bytes()
}

func loadAll(t *testing.T, vm *VM, state []byte) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := io.Copy(w, bytes.NewReader(state))
		_ = w.Close()
		written <- err
	}()
	err = vm.LoadAll(testContext(t), r)
	_ = r.Close()
	if writeErr := <-written; err != nil || writeErr != nil {
		t.Fatal(err, writeErr)
	}
}

// A machine whose state cannot be written runs on, and a device that cannot be saved is
// named.
func TestFailedSnapshot(t *testing.T) {
	vm := launch(t, guestSpec(t))
	guest := vsockTo(t, vm)
	up(t, vm)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer w.Close()
	if err := vm.SaveAll(testContext(t), w); err == nil || !strings.Contains(err.Error(), "vsock") {
		t.Errorf("with a vsock device: %v", err)
	}
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	guest.echo(t)
	if err := vm.Detach(testContext(t), "vsock0"); err != nil {
		t.Fatal(err)
	}
	if err := vm.SaveAll(testContext(t), w); err == nil {
		t.Error("saved into a closed pipe")
	}
	again := vsockTo(t, vm)
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	again.echo(t)
}

// A machine is not loaded without the saved one's devices.
func TestLoadWithoutDevices(t *testing.T) {
	spec := guestSpec(t)
	spec.Awaits = &hypervisor.Layout{Devices: map[string]hypervisor.PCIPath{"rng": "01/05"}}
	vm := launch(t, spec)
	err := vm.LoadAll(testContext(t), os.Stdin)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "rng") {
		t.Errorf("%v", err)
	}
}
