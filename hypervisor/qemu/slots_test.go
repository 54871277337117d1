package qemu

import (
	"testing"

	"github.com/containerd/errdefs"
)

// One call at a time works on a device. One that learns nothing about it leaves its state.
func TestClaims(t *testing.T) {
	for _, state := range []deviceState{attached, unsure, gone} {
		vm := &VM{devices: map[string]*device{"x": {busy: true}}}
		vm.settle("x", state, []command{{name: objectDel}})
		if remains, err := vm.claim("x"); err != nil || len(remains) != 1 {
			t.Fatalf("state %d: %v, %v", state, remains, err)
		}
		if _, err := vm.claim("x"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("state %d: claimed twice: %v", state, err)
		}
		if _, ok := vm.claimIn("x", state); ok {
			t.Errorf("state %d: claimed twice", state)
		}
		vm.release("x")
		for _, other := range []deviceState{attached, unsure, gone} {
			remains, ok := vm.claimIn("x", other)
			if ok != (other == state) || ok && len(remains) != 1 {
				t.Errorf("state %d claimed as %d: %v, %v", state, other, remains, ok)
			}
			if ok {
				vm.release("x")
			}
		}
	}
}
