package qemu

import (
	"net"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// A guest with a real driver sees a card that exists at boot, one that is
// plugged later, and the removal of both; a slot is reused.
func TestHotplug(t *testing.T) {
	ns := testNetns(t)
	spec := guestSpec(t)
	spec.NetworkNamespace = netnsPath(ns)
	vm := launch(t, spec)
	boot := testNIC(t, ns, "boot", 2)
	plug(t, vm, boot, "01/01")
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	awaitConsole(t, vm, saw("add", "01/01", boot.MAC.String()), ready)

	for i, id := range []string{"first", "second"} {
		nic := testNIC(t, ns, id, 1+i)
		nic.MAC = net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}
		start := time.Now()
		plug(t, vm, nic, "01/05")
		accepted := time.Since(start)
		awaitConsole(t, vm, saw("add", "01/05", nic.MAC.String()))
		t.Logf("%d queues: accepted after %v, seen by the guest after %v", len(nic.Taps), accepted, time.Since(start))
		start = time.Now()
		unplug(t, vm, id)
		t.Logf("unplugged after %v", time.Since(start))
	}
	// Its queues, one of which QEMU has disabled, are reused for another card.
	unplug(t, vm, "boot")
	again := boot
	again.ID, again.MAC = "again", net.HardwareAddr{2, 0, 0, 0, 2, 0}
	plug(t, vm, again, "01/01")
	awaitConsole(t, vm, saw("add", "01/01", again.MAC.String()))
	unplug(t, vm, "again")
	awaitConsole(t, vm, saw("remove", "01/05", "-"), saw("remove", "01/01", "-"))
	if text := netdevs(t, vm); text != "" || tapsOf(t, vm.PID()) != 0 {
		t.Errorf("QEMU keeps %q and %d TAP queues", text, tapsOf(t, vm.PID()))
	}
}

func plug(t *testing.T, vm *VM, nic hypervisor.NIC, want hypervisor.PCIPath) {
	t.Helper()
	if err := vm.Attach(testContext(t), nic); err != nil {
		t.Fatal(err)
	}
	if path, err := vm.PCIPath(nic.ID); path != want || err != nil {
		t.Errorf("%s is at %q, %v, want %s", nic.ID, path, err, want)
	}
}

func unplug(t *testing.T, vm *VM, id string) {
	t.Helper()
	if err := vm.Detach(testContext(t), id); err != nil {
		t.Fatalf("%v; console:\n%s", err, vm.ConsoleTail())
	}
}

// A device's back end in QEMU is removed with it.
func TestHotUnplugShare(t *testing.T) {
	vm := launch(t, guestSpec(t))
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	awaitConsole(t, vm, ready)
	for range 2 {
		if err := vm.Attach(testContext(t), hypervisor.FSShare{ID: "share", Tag: "t", Socket: shareSocket(t)}); err != nil {
			t.Fatal(err)
		}
		unplug(t, vm, "share")
		var chardevs []struct{ Label string }
		if err := vm.mon.Execute(testContext(t), "query-chardev", nil, &chardevs); err != nil {
			t.Fatal(err)
		}
		if len(chardevs) != 2 { // qmp, console
			t.Errorf("chardevs: %+v", chardevs)
		}
	}
}

// After a Detach that came too early another one works.
func TestDetachFromPausedMachine(t *testing.T) {
	ns := testNetns(t)
	vm := launch(t, guestSpec(t))
	plug(t, vm, testNIC(t, ns, "n", 1), "01/01")
	if err := vm.Detach(testContext(t), "n"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Detach from a paused machine: %v", err)
	}
	if got := tapsOf(t, vm.PID()); got != 1 {
		t.Errorf("QEMU has %d TAP queues", got)
	}
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	awaitConsole(t, vm, ready)
	unplug(t, vm, "n")
	if got := tapsOf(t, vm.PID()); got != 0 {
		t.Errorf("QEMU has %d TAP queues afterwards", got)
	}
}
