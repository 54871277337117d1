package qemu

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// moduleBoard is a machine whose QEMU refuses a memory module with full, and removing
// the module's memory with inUse the first time.
func moduleBoard(t *testing.T, full, inUse string) *scripted {
	t.Helper()
	b := &board{}
	vm := scriptAnswers(t, func(s *qmptest.Server, r qmptest.Request) any {
		said := ""
		switch r.Execute {
		case "device_add":
			said = full
		case objectDel:
			said, inUse = inUse, ""
		}
		if said == "" {
			return b.answer(s, r)
		}
		return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: said}
	})
	vm.spec = hypervisor.Spec{VCPUs: 1, MemoryMiB: 512, MaxMemoryMiB: 1100, MemoryModel: hypervisor.MemoryDIMM, MemorySlots: 3, Accel: hypervisor.AccelKVM}
	resume(t, vm)
	return vm
}

// A table of memory that is full is told from other faults, whatever words a QEMU has
// for it.
func TestFullMemoryTable(t *testing.T) {
	for words, want := range map[string]bool{
		"a used vhost backend has no free memory slots left":         true, // 7.2
		"hypervisor has no free memory slots left":                   true,
		"a used vhost backend has not enough free memory slots left": true, // 8.2 to 11.1
		"hypervisor has not enough free memory slots left":           true,
		outOfLuck: false,
	} {
		vm := moduleBoard(t, words, "")
		_, err := vm.SetMemoryMiB(testContext(t), 640, 640)
		if err == nil || errdefs.IsResourceExhausted(err) != want || !strings.Contains(err.Error(), words) {
			t.Errorf("after %q: %v, want exhausted %t", words, err, want)
		}
	}
}

// The memory of a refused module is removed as soon as QEMU does not use it any more.
func TestMemoryOfRefusedModuleGoes(t *testing.T) {
	for _, words := range []string{
		"object 'pod.dimm.0.memory' is in use, can not be deleted",              // 7.2, 10.0
		"Cannot delete host memory backend 'pod.dimm.0.memory' which is mapped", // 11.1
	} {
		vm := moduleBoard(t, outOfLuck, words)
		if _, err := vm.SetMemoryMiB(testContext(t), 640, 640); err == nil {
			t.Error("a refused module is plugged")
		}
		removals := 0
		for _, c := range vm.changes() {
			if strings.HasPrefix(c, objectDel) {
				removals++
			}
		}
		if removals != 2 || vm.moduleLeft {
			t.Errorf("after %q: %d requests to remove the memory, left %t", words, removals, vm.moduleLeft)
		}
	}
}
