package network

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An Attach that ends without an answer may have attached the NIC. It is removed, at
// once or by a later Plug, and its ID, which the VM may keep, is not used again.
func TestAttachWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("it keeps the NIC %v", keeps), func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			before := inventory(t, p.ns)
			n, vm := p.open(t, Options{}), newMachine(t)
			ctx, cancel := context.WithCancel(t.Context())
			vm.unanswered = cancel // its caller has given up
			if keeps {
				vm.detach = errInjected
			}
			if err := n.Plug(ctx, vm); !errors.Is(err, context.Canceled) || errors.Is(err, errInjected) != keeps {
				t.Errorf("Plug: %v", err)
			}
			if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" && !keeps {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
			vm.unanswered, vm.detach = nil, nil
			must(t, n.Plug(t.Context(), vm))
			if len(vm.order) != 2 || len(vm.detached) != 1 || vm.detached[0] != vm.order[0] || vm.order[1] == vm.order[0] {
				t.Fatalf("NICs %v, detached %v: want the second of two", vm.order, vm.detached)
			}
			if got := interfaces(n); !cmp.Equal(got, []string{"eth0"}) {
				t.Errorf("the guest has %v", got)
			}
			ping(t, p, vm.taps[vm.order[1]][0], "eth0")
		})
	}
}
