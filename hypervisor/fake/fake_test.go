package fake_test

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
)

var errInjected = errors.New("injected")

func launch(t *testing.T, m *fake.Monitor) *fake.VM {
	t.Helper()
	vm, err := m.Launch(t.Context(), hypervisor.Spec{ID: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	return vm.(*fake.VM)
}

func TestLife(t *testing.T) {
	var m fake.Monitor
	vm := launch(t, &m)
	want := []hypervisor.Device{hypervisor.FSShare{ID: "share"}, hypervisor.VhostVsock{ID: "vsock"}}
	for _, d := range want {
		if err := vm.Attach(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, vm.Devices()); diff != "" {
		t.Error(diff)
	}
	if err := vm.Attach(t.Context(), want[0]); !errdefs.IsAlreadyExists(err) {
		t.Errorf("the same device again: %v", err)
	}
	if err := vm.Resume(t.Context()); err != nil || !vm.Resumed() {
		t.Errorf("Resume: %v, resumed %v", err, vm.Resumed())
	}
	if vm.Err() != nil {
		t.Errorf("Err while it runs: %v", vm.Err())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := vm.Stop(ended); err != nil {
		t.Errorf("Stop with an ended context: %v", err)
	}
	<-vm.Done()
	vm.Die(errInjected)
	if !errors.Is(vm.Err(), hypervisor.ErrStopped) {
		t.Errorf("Err: %v", vm.Err())
	}
	if err := vm.Resume(t.Context()); !errors.Is(err, hypervisor.ErrStopped) {
		t.Errorf("Resume after the end: %v", err)
	}
	if len(m.VMs()) != 1 || vm.Stops() != 1 {
		t.Errorf("%d machines, %d stops", len(m.VMs()), vm.Stops())
	}
}

func TestDetach(t *testing.T) {
	var m fake.Monitor
	vm := launch(t, &m)
	for _, id := range []string{"a", "b", "c"} {
		if err := vm.Attach(t.Context(), hypervisor.NIC{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if err := vm.Detach(t.Context(), "b"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Detach before Resume: %v", err)
	}
	if err := vm.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Fail(fake.StepDetach, errInjected)
	if err := vm.Detach(t.Context(), "b"); !errors.Is(err, errInjected) || len(vm.Devices()) != 3 {
		t.Errorf("Detach that is told to fail: %v", err)
	}
	m.Fail(fake.StepDetach, nil)
	if err := vm.Detach(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if err := vm.Detach(t.Context(), "b"); !errdefs.IsNotFound(err) {
		t.Errorf("Detach again: %v", err)
	}
	if _, err := vm.PCIPath("b"); !errdefs.IsNotFound(err) {
		t.Errorf("PCIPath of what is gone: %v", err)
	}
	if err := vm.Attach(t.Context(), hypervisor.NIC{ID: "d"}); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]hypervisor.PCIPath{"a": "01/01", "c": "01/03", "d": "01/02"} {
		if got, err := vm.PCIPath(id); got != want || err != nil {
			t.Errorf("%s is at %q, %v, want %s", id, got, err, want)
		}
	}
	var left []string
	for _, d := range vm.Devices() {
		left = append(left, d.DeviceID())
	}
	if diff := cmp.Diff([][]string{{"a", "c", "d"}, {"b"}}, [][]string{left, vm.Detached()}); diff != "" {
		t.Error(diff)
	}
	vm.Die(errInjected)
	if err := vm.Detach(t.Context(), "a"); !errors.Is(err, errInjected) {
		t.Errorf("Detach after the end: %v", err)
	}
}

// A machine that is gone does not answer, as a VMM whose process has ended does not.
func TestAnswerAfterTheEnd(t *testing.T) {
	var m fake.Monitor
	vm := launch(t, &m)
	if err := vm.Answer(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	vm.Die(errInjected)
	if err := vm.Answer(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("after the end: %v", err)
	}
}

func TestFailures(t *testing.T) {
	share, vsock := hypervisor.FSShare{ID: "a"}, hypervisor.VhostUserVsock{ID: "b"}
	for _, tt := range []struct {
		step fake.Step
		call func(*fake.VM) error
	}{
		{fake.StepAttach, func(vm *fake.VM) error { return vm.Attach(t.Context(), share) }},
		{fake.AttachStep(vsock), func(vm *fake.VM) error { return vm.Attach(t.Context(), vsock) }},
		{fake.StepVCPUThreads, func(vm *fake.VM) error { _, _, err := vm.VCPUThreads(t.Context()); return err }},
		{fake.StepResume, func(vm *fake.VM) error { return vm.Resume(t.Context()) }},
		{fake.StepStop, func(vm *fake.VM) error { return vm.Stop(t.Context()) }},
	} {
		var m fake.Monitor
		vm := launch(t, &m)
		m.Fail(tt.step, errInjected)
		if err := tt.call(vm); !errors.Is(err, errInjected) {
			t.Errorf("%s: %v", tt.step, err)
		}
		if len(vm.Devices()) != 0 || vm.Resumed() || vm.Err() != nil {
			t.Errorf("%s had an effect although it failed", tt.step)
		}
		m.Fail(tt.step, nil)
		if err := tt.call(vm); err != nil {
			t.Errorf("%s afterwards: %v", tt.step, err)
		}
	}
	var m fake.Monitor
	m.Fail(fake.AttachStep(vsock), errInjected)
	if err := launch(t, &m).Attach(t.Context(), share); err != nil {
		t.Errorf("another kind fails too: %v", err)
	}
	m.Fail(fake.StepLaunch, errInjected)
	if _, err := m.Launch(t.Context(), hypervisor.Spec{}); !errors.Is(err, errInjected) || len(m.VMs()) != 1 {
		t.Errorf("launch: %v", err)
	}
}

func TestHook(t *testing.T) {
	var m fake.Monitor
	m.Hook(fake.StepResume, func(_ context.Context, vm *fake.VM) error {
		vm.SetConsole("Kernel panic")
		vm.Die(hypervisor.ErrPowerOff)
		return nil
	})
	vm := launch(t, &m)
	if err := vm.Resume(t.Context()); !errors.Is(err, hypervisor.ErrPowerOff) {
		t.Errorf("Resume of a machine that dies meanwhile: %v", err)
	}
	if vm.ConsoleTail() != "Kernel panic" {
		t.Errorf("console: %q", vm.ConsoleTail())
	}
}

func TestVCPUThreads(t *testing.T) {
	var m fake.Monitor
	vm := launch(t, &m)
	if ids, _, err := vm.VCPUThreads(t.Context()); len(ids) != 0 || err != nil {
		t.Errorf("threads of a new machine: %v, %v", ids, err)
	}
	vm.SetVCPUThreads(7, 9)
	ids, _, err := vm.VCPUThreads(t.Context())
	if diff := cmp.Diff([]int{7, 9}, ids); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	vm.Die(errInjected)
	if _, _, err := vm.VCPUThreads(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("threads of a machine that died: %v", err)
	}
}
