package fake_test

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
)

func TestResize(t *testing.T) {
	m := new(fake.Monitor)
	made, err := m.Launch(t.Context(), hypervisor.Spec{
		ID: "s1", VCPUs: 1, MaxVCPUs: 4, MemoryMiB: 512, MaxMemoryMiB: 2048, MemoryModel: hypervisor.MemoryVirtio,
	})
	if err != nil {
		t.Fatal(err)
	}
	vm := made.(*fake.VM)
	if now, err := vm.SetVCPUs(t.Context(), 2); now != 1 || !errdefs.IsFailedPrecondition(err) {
		t.Errorf("before Resume: %d, %v", now, err)
	}
	if err := vm.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(n, want uint64) {
		t.Helper()
		cpus, err := vm.SetVCPUs(t.Context(), uint32(n))
		if uint64(cpus) != want || err != nil {
			t.Errorf("SetVCPUs(%d): %d, %v, want %d", n, cpus, err, want)
		}
		memory, err := vm.SetMemoryMiB(t.Context(), 512*n, 0)
		if memory != 512*want || err != nil {
			t.Errorf("SetMemoryMiB(%d): %d, %v, want %d", 512*n, memory, err, 512*want)
		}
	}
	check(3, 3)
	check(0, 1)
	check(9, 4)
	vm.KeepSize(true)
	check(2, 4)
	vm.KeepSize(false)
	if cpus, memory := vm.Size(); cpus != 2 || memory != 2048 {
		t.Errorf("what the guest kept: %d CPUs, %d MiB, want 2 and 2048", cpus, memory)
	}
	check(4, 4)
	vm.Spec.MemoryModel = hypervisor.MemoryDIMM
	if now, err := vm.SetMemoryMiB(t.Context(), 512, 0); now != 2048 || err != nil {
		t.Errorf("modules stay: %d, %v", now, err)
	}
	m.Fail(fake.StepSetVCPUs, errInjected)
	if now, err := vm.SetVCPUs(t.Context(), 1); now != 4 || err == nil {
		t.Errorf("told to fail: %d, %v", now, err)
	}
	if cpus, memory := vm.Size(); cpus != 4 || memory != 2048 {
		t.Errorf("in the end: %d CPUs, %d MiB", cpus, memory)
	}
}
