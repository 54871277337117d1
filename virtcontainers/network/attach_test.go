package network

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var errNoAnswer = errors.New("no answer")

// An Attach that ends without an answer may have attached the NIC. It is removed, at
// once or by a later Plug, and its ID, which the VM may keep, is not used again.
func TestAttachWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ cancelled, keeps bool }{
		"at once":                    {},
		"the VM keeps it":            {keeps: true},
		"the caller waits no longer": {cancelled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			before := inventory(t, p.ns)
			n, vm := p.open(t, Options{}), newMachine(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			vm.unanswered = func() error { return errNoAnswer }
			if test.cancelled {
				vm.unanswered = func() error { cancel(); return errNoAnswer }
			}
			if test.keeps {
				vm.detach = errInjected
			}
			if err := n.Plug(ctx, vm); !errors.Is(err, errNoAnswer) || errors.Is(err, errInjected) != test.keeps {
				t.Errorf("Plug: %v", err)
			}
			if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" && !test.keeps {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
			if !test.keeps && len(vm.detached) == 0 != test.cancelled {
				t.Errorf("detached: %v", vm.detached)
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

// What an abandoned attempt could not undo is in what is saved next, for the next one and
// for Clean. What it has undone is not: another VM's may have the same names.
func TestAbandonedJoint(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"undone": false, "not undone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			var saved string
			n, vm := p.open(t, Options{Save: func(data []byte) error { saved = string(data); return nil }}), newMachine(t)
			packets := n.ns.packets
			ctx, cancel := context.WithCancel(t.Context())
			vm.unanswered = func() error {
				cancel()
				if fails {
					n.ns.packets = closedFile(t)
				}
				return errNoAnswer
			}
			if err := n.Plug(ctx, vm); !errors.Is(err, errNoAnswer) || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF) != fails {
				t.Errorf("Plug: %v", err)
			}
			n.ns.packets = packets
			must(t, n.save())
			if tap := tapName(linkOf(t, p.ns, "eth0").Attrs().Index); strings.Contains(saved, tap) != fails {
				t.Errorf("the record is %s", saved)
			}
		})
	}
}

func closedFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.Open(os.DevNull)
	must(t, err)
	must(t, file.Close())
	return file
}
