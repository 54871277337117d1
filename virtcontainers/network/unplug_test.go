package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// While the NICs are away nothing of them is left, and Plug makes none; then the
// guest has the same interfaces.
func TestUnplug(t *testing.T) {
	t.Parallel()
	for name, opts := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRoutedPod(t)
			before := inventory(t, p.ns)
			n, vm := p.open(t, opts), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			told := interfaces(n)
			must(t, n.Unplug(t.Context(), vm))
			must(t, n.Plug(t.Context(), vm))
			if got := vm.taps; len(got) != 0 {
				t.Errorf("the VM has %v", got)
			}
			if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
			must(t, n.Replug(t.Context(), vm))
			if diff := cmp.Diff(told, interfaces(n)); diff != "" {
				t.Errorf("the guest is told other interfaces (-before +after):\n%s", diff)
			}
			if len(vm.taps) == 0 {
				t.Error("the VM has no NIC")
			}
			vm.end()
			must(t, n.Close(t.Context()))
			if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
				t.Errorf("left behind in the end (-before +after):\n%s", diff)
			}
		})
	}
}
