package network

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

// A second VM cannot have a link that a first one has. Its refusal, its end and
// its clean-up leave the first one's joints alone, whether it found them or
// lost a race.
func TestSecondVMLeavesTheFirstAlone(t *testing.T) {
	t.Parallel()
	for name, opts := range ways {
		for _, overtaken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, overtaken %v", name, overtaken), func(t *testing.T) {
				t.Parallel()
				p := newPod(t)
				first, vm := p.open(t, opts), newMachine(t)
				var joined string
				join := func() {
					must(t, first.Plug(t.Context(), vm))
					joined = inventory(t, p.ns)
				}
				var saved []byte
				opts := opts
				opts.Save = func(made []byte) error {
					if overtaken && joined == "" {
						join() // after the second has planned
						return nil
					}
					saved = bytes.Clone(made)
					return nil
				}
				if !overtaken {
					join()
				}
				second := p.open(t, opts)
				err := second.Plug(t.Context(), newMachine(t))
				if !errdefs.IsAlreadyExists(err) && (opts.Model != Macvtap || !overtaken || err == nil) {
					t.Errorf("the second VM: %v", err)
				}
				unchanged := func(after string) {
					t.Helper()
					if diff := cmp.Diff(joined, inventory(t, p.ns)); diff != "" {
						t.Errorf("%s changed what the first one has (-before +after):\n%s", after, diff)
					}
				}
				unchanged("the refusal")
				must(t, second.Close(t.Context()))
				unchanged("the second's end")
				if saved != nil {
					must(t, Clean(p.path, saved))
					unchanged("cleaning up after it")
				}
			})
		}
	}
}

// When the first VM has ended, the second one's next Plug finds the link free.
func TestSecondVMGetsTheLinkLater(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	first, vm := p.open(t, Options{}), newMachine(t)
	must(t, first.Plug(t.Context(), vm))
	second, other := p.open(t, Options{}), newMachine(t)
	if err := second.Plug(t.Context(), other); !errdefs.IsAlreadyExists(err) {
		t.Fatalf("the second VM: %v", err)
	}
	vm.end()
	must(t, first.Close(t.Context()))
	must(t, second.Plug(t.Context(), other))
	if got := interfaces(second); !cmp.Equal(got, []string{"eth0"}) {
		t.Errorf("the guest has %v", got)
	}
	ping(t, p, other.taps[other.order[0]][0], "eth0")
}
