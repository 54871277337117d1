package qemu

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vsock"
)

// withMemory makes room for plugged memory.
func withMemory(spec hypervisor.Spec, model hypervisor.MemoryModel) hypervisor.Spec {
	spec.MaxMemoryMiB, spec.MemoryModel = 2048, model
	if model == hypervisor.MemoryDIMM {
		spec.MemorySlots = 10
	}
	return spec
}

// up resumes a machine with testguest and waits for it.
func up(t testing.TB, vm *VM) {
	t.Helper()
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	awaitConsole(t, vm, ready)
}

func setVCPUs(t testing.TB, vm *VM, n, want uint32) {
	t.Helper()
	start := time.Now()
	now, err := vm.SetVCPUs(testContext(t), n)
	if now != want || err != nil {
		t.Fatalf("SetVCPUs(%d): %d, %v, want %d; console:\n%s", n, now, err, want, vm.ConsoleTail())
	}
	t.Logf("SetVCPUs(%d) took %v", n, time.Since(start))
}

// setMemory asks for n MiB, and allows as much as there can be.
func setMemory(t testing.TB, vm *VM, n, want uint64) {
	t.Helper()
	start := time.Now()
	now, err := vm.SetMemoryMiB(testContext(t), n, vm.spec.MaxMemoryMiB)
	if now != want || err != nil {
		t.Fatalf("SetMemoryMiB(%d): %d, %v, want %d; console:\n%s", n, now, err, want, vm.ConsoleTail())
	}
	t.Logf("SetMemoryMiB(%d) took %v", n, time.Since(start))
}

// CPUs are plugged and unplugged while the guest runs; the boot CPUs stay.
func TestVCPUsInGuest(t *testing.T) {
	spec := guestSpec(t)
	spec.MaxVCPUs = 4
	vm := launch(t, spec)
	if spec.Accel == hypervisor.AccelTCG {
		up(t, vm)
		awaitConsole(t, vm, "testguest: boot cpu, online 0")
		setVCPUs(t, vm, 3, 3)
		return // the agent brings them online: tests/containerd
	}
	up(t, vm)
	setVCPUs(t, vm, 3, 3)
	awaitConsole(t, vm, "testguest: add cpu, online 0-2")
	setVCPUs(t, vm, 9, 4)
	awaitConsole(t, vm, "testguest: add cpu, online 0-3")
	setVCPUs(t, vm, 2, 2)
	awaitConsole(t, vm, "testguest: remove cpu, online 0-1")
	setVCPUs(t, vm, 0, 1)
	setVCPUs(t, vm, 2, 2)
}

// Memory of both models is plugged while the guest runs, and data still arrives
// through a back end in another process. virtio-mem is unplugged, too.
func TestMemoryInGuest(t *testing.T) {
	want := map[hypervisor.MemoryModel]struct{ hundred, none uint64 }{
		hypervisor.MemoryDIMM:   {128, 512},
		hypervisor.MemoryVirtio: {100, 256},
	}
	for _, model := range []hypervisor.MemoryModel{hypervisor.MemoryDIMM, hypervisor.MemoryVirtio} {
		t.Run(string(model), func(t *testing.T) {
			vm := launch(t, withMemory(guestSpec(t), model))
			guest := vsockTo(t, vm)
			if err := vm.Attach(testContext(t), hypervisor.FSShare{ID: "share", Tag: "t", Socket: shareSocket(t)}); err != nil {
				t.Fatal(err)
			}
			up(t, vm)
			guest.echo(t)
			setMemory(t, vm, 256+100, 256+want[model].hundred)
			setMemory(t, vm, 512, 512)
			awaitConsole(t, vm, "testguest: memory +256 MiB")
			guest.echo(t)
			setMemory(t, vm, 0, want[model].none)
			if want[model].none == 256 {
				awaitConsole(t, vm, "testguest: memory +0 MiB")
			}
			guest.echo(t)
			setMemory(t, vm, 4096, 2048)
			awaitConsole(t, vm, "testguest: memory +1792 MiB")
			guest.echo(t)
		})
	}
}

// A vhost-user back end takes a limited number of modules; trying to plug more
// does no harm.
func TestModulesOfVhostUser(t *testing.T) {
	const most = 7
	spec := withMemory(guestSpec(t), hypervisor.MemoryDIMM)
	spec.MaxMemoryMiB = 16384 // the later modules are as large as all before
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	up(t, vm)
	had := uint64(256)
	for range most {
		now, err := vm.SetMemoryMiB(testContext(t), had+128, spec.MaxMemoryMiB)
		if err != nil || now < had+128 {
			t.Fatalf("from %d MiB: %d, %v", had, now, err)
		}
		had = now
	}
	now, err := vm.SetMemoryMiB(testContext(t), had+128, spec.MaxMemoryMiB)
	if now != had || !errdefs.IsResourceExhausted(err) {
		t.Errorf("one more: %d, %v", now, err)
	}
	guest.echo(t)
	var objects []struct{ Name string }
	if err := vm.mon.Execute(testContext(t), "qom-list", map[string]string{"path": "/objects"}, &objects); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(objects), fmt.Sprintf("%s%d", dimmPrefix, most)) {
		t.Errorf("QEMU keeps memory: %v", objects)
	}
}

// guestVsock is a vsock transport to a machine.
type guestVsock struct{ vsock.Transport }

// vsockTo attaches a vsock device with its back end in this process.
func vsockTo(t testing.TB, vm *VM) guestVsock {
	t.Helper()
	tr, err := vsock.Open(testContext(t), vsock.Options{VhostPath: "/nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := tr.Attach(testContext(t), vm); err != nil {
		t.Fatal(err)
	}
	return guestVsock{tr}
}

// echo sends more than the rings hold and checks the echo.
func (g guestVsock) echo(t testing.TB) {
	t.Helper()
	const testguestEcho = 1
	ctx := testContext(t)
	conn, err := g.Dial(ctx, testguestEcho)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	data := bytes.Repeat([]byte("katabox "), 128<<10)
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		sent <- err
	}()
	back := make([]byte, len(data))
	_, err = io.ReadFull(conn, back)
	if sendErr := <-sent; err != nil || sendErr != nil || !bytes.Equal(data, back) {
		t.Errorf("the guest gave something else back: %v, %v", err, fmt.Sprint(sendErr))
	}
}
