package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// strict is a board that, as QEMU does, refuses an ID that it has and the removal of
// what it has not, and does not answer one command.
type strict struct {
	board
	objects, devices map[string]bool

	silent string // the command without an answer, once
	lost   bool   // that command has no effect
	cancel func() // called instead of the answer
}

func (s *strict) handle(server *qmptest.Server, r qmptest.Request) any {
	if r.Execute != s.silent {
		return s.carryOut(server, r)
	}
	s.silent = ""
	if !s.lost {
		s.carryOut(server, r)
	}
	s.cancel()
	return qmptest.Silence{}
}

func (s *strict) carryOut(server *qmptest.Server, r qmptest.Request) any {
	var args struct{ ID, Memdev string }
	_ = json.Unmarshal(r.Arguments, &args)
	switch {
	case r.Execute == "object-add" && s.objects[args.ID]:
		return refusal("attempt to add duplicate property '%s' to object (type 'container')", args.ID)
	case r.Execute == "object-add":
		s.objects[args.ID] = true
	case r.Execute == "object-del" && !s.objects[args.ID]:
		return refusal("object '%s' not found", args.ID)
	case r.Execute == "object-del" && s.devices[strings.TrimSuffix(args.ID, memorySuffix)]:
		return refusal("object '%s' is in use, can not be deleted", args.ID)
	case r.Execute == "object-del":
		delete(s.objects, args.ID)
	case r.Execute == "device_add" && s.devices[args.ID]:
		return refusal("Duplicate device ID '%s'", args.ID)
	case r.Execute == "device_add":
		s.devices[args.ID] = true
	case r.Execute == "qom-list":
		return s.list()
	}
	return s.answer(server, r)
}

func refusal(format string, id string) any {
	return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: fmt.Sprintf(format, id)}
}

// list is the content of /machine/peripheral.
func (s *strict) list() any {
	all := []map[string]string{{"name": "type", "type": "string"}}
	for _, id := range slices.Sorted(maps.Keys(s.devices)) {
		all = append(all, map[string]string{"name": id, "type": "child<device>"})
	}
	return all
}

// scriptStrict is scriptBoard with a context that ends when the silent command comes.
func scriptStrict(t *testing.T, model hypervisor.MemoryModel, silent string, lost bool) (*scripted, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	s := &strict{objects: make(map[string]bool), devices: make(map[string]bool), silent: silent, lost: lost, cancel: cancel}
	vm := scriptAnswers(t, s.handle)
	vm.spec = hypervisor.Spec{
		VCPUs: 2, MemoryMiB: 512, MaxMemoryMiB: 1536, MemoryModel: model, MemorySlots: 8, Accel: hypervisor.AccelKVM,
	}
	resume(t, vm)
	return vm, ctx
}

// Memory whose plugging QEMU has not confirmed does not keep the machine from growing.
func TestMemoryGrowsAfterSilence(t *testing.T) {
	for _, model := range []hypervisor.MemoryModel{hypervisor.MemoryDIMM, hypervisor.MemoryVirtio} {
		for _, silent := range []string{"object-add", "device_add"} {
			for _, lost := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, lost %v", model, silent, lost), func(t *testing.T) {
					vm, ctx := scriptStrict(t, model, silent, lost)
					start := time.Now()
					if _, err := vm.SetMemoryMiB(ctx, 640, 640); err == nil {
						t.Error("SetMemoryMiB succeeded without an answer")
					}
					if took := time.Since(start); took > cleanupTimeout-time.Second {
						t.Errorf("it gave up after %v", took)
					}
					for n := uint64(768); n <= 1024; n += 128 {
						setMemory(t, vm.VM, n, n)
					}
				})
			}
		}
	}
}

// The same for a context that ends between a module's memory and the module.
func TestMemoryGrowsAfterItsObjectStayed(t *testing.T) {
	vm, ctx := scriptStrict(t, hypervisor.MemoryDIMM, "", false)
	vm.moduleLeft = true // an attempt could not be cleared away
	if err := vm.run(ctx, command{"object-add", map[string]any{"id": dimmPrefix + "0" + memorySuffix}}); err != nil {
		t.Fatal(err)
	}
	setMemory(t, vm.VM, 640, 640)
	setMemory(t, vm.VM, 768, 768)
}

// Disks can be attached if QEMU did not confirm their controller for an earlier one.
func TestControllerAfterSilence(t *testing.T) {
	for _, lost := range []bool{false, true} {
		vm, ctx := scriptStrict(t, "", "device_add", lost)
		if err := vm.Attach(ctx, testDisk(t, "a", hypervisor.VirtioSCSI)); err == nil {
			t.Error("Attach succeeded without an answer")
		}
		for _, id := range []string{"a", "b"} {
			if err := vm.Attach(testContext(t), testDisk(t, id, hypervisor.VirtioSCSI)); err != nil {
				t.Errorf("lost %v: %v", lost, err)
			}
		}
		if where, err := vm.Locate("b"); err != nil || where.PCIPath != "01/01" {
			t.Errorf("lost %v: at %+v, %v", lost, where, err)
		}
	}
}

// Memory that is allocated up front has the time for it, and as many threads as at boot.
func TestPluggedMemoryIsFilledInTime(t *testing.T) {
	spec := hypervisor.MemoryBacking{Prealloc: true}
	if got := fillTime(spec, 64<<10); got != 128*time.Second {
		t.Errorf("64 GiB have %v more", got)
	}
	if got := fillTime(hypervisor.MemoryBacking{}, 64<<10); got != 0 {
		t.Errorf("memory that is not allocated has %v more", got)
	}
	vm, _ := scriptStrict(t, hypervisor.MemoryDIMM, "", false)
	vm.spec.Memory = spec
	setMemory(t, vm.VM, 640, 640)
	want := `object-add {"id":"pod.dimm.0.memory","prealloc":true,"prealloc-threads":2,"qom-type":"memory-backend-memfd","share":true,"size":134217728}`
	if got := vm.changes()[0]; got != want {
		t.Errorf("sent: %s", got)
	}
}

// What is asked and expected after silence is what QEMU does.
func TestQEMUAfterSilence(t *testing.T) {
	spec := testSpec(t, testKernel(t, "", idle))
	spec.Memory.Prealloc = true
	vm := launch(t, spec)
	if err := vm.placeOwn(testContext(t), scsiController, plan{device: onPodBus(scsiController, map[string]any{"driver": "virtio-scsi-pci"})}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{scsiController: true, virtioMem: false} {
		if got, err := vm.hasDevice(testContext(t), id); err != nil || got != want {
			t.Errorf("%s is there: %t, %v, want %t", id, got, err, want)
		}
	}
	add, remove := memoryObject("x", 128, spec.Memory)
	add.args["prealloc-threads"] = fillThreads(spec)
	for range 2 {
		if err := vm.run(testContext(t), remove); !unknown(err) {
			t.Errorf("removal of an object that is not there: %v", err)
		}
		for _, step := range []command{add, remove} {
			if err := vm.run(testContext(t), step); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
	}
}
