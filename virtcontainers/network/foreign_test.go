package network

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/vishvananda/netlink"
)

// takenEtherType is another local experimental one.
const takenEtherType = 0x88b6

// Filters that were there keep their effect, whatever their priority: the kernel's choice
// is the one that ours would have.
func TestForeignQdiscs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		qdisc    string
		priority uint16
	}{{"ingress", 0}, {"clsact", 0}, {"ingress", topPriority - 1}, {"clsact", topPriority + 7}, {"ingress", 1}} {
		t.Run(fmt.Sprintf("%s, priority %d", test.qdisc, test.priority), func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			index := linkOf(t, p.ns, "eth0").Attrs().Index
			attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}
			must(t, p.ns.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: test.qdisc}))
			other := filterOf(index, test.priority) // it takes what a first filter would leave to it
			other.Protocol = takenEtherType
			other.Actions = []netlink.Action{netlink.NewMirredAction(index)}
			must(t, p.ns.FilterAdd(other))
			before := inventory(t, p.ns)
			n, vm := p.open(t, Options{}), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			taken := frame(linkOf(t, p.host, "eth0").Attrs().HardwareAddr, "taken")
			binary.BigEndian.PutUint16(taken[etherType:], takenEtherType)
			w, tap := wire(t, p.host, "eth0"), vm.taps[vm.order[0]][0]
			for _, f := range [][]byte{taken, frame(linkOf(t, p.host, "eth0").Attrs().HardwareAddr, "not taken")} {
				if _, err := w.Write(f); err != nil {
					t.Fatal(err)
				}
			}
			if got := firstOf(t, tap, vnetHeader, "taken", "not taken"); got != "not taken" {
				t.Error("the guest gets what another filter takes")
			}
			ping(t, p, tap, "eth0")
			vm.end()
			must(t, n.Close(t.Context()))
			if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("root", func(t *testing.T) {
		t.Parallel()
		p := newPod(t)
		must(t, p.ns.limitRate(linkOf(t, p.ns, "eth0").Attrs().Index, 1e6))
		n, vm := p.open(t, Options{TxRate: 1e6}), newMachine(t)
		if err := n.Plug(t.Context(), vm); !errdefs.IsAlreadyExists(err) {
			t.Errorf("Plug: %v", err)
		}
		if err := n.Plug(t.Context(), vm); err != nil {
			t.Errorf("the same again: %v", err)
		}
	})
}

func TestChoosePriorities(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		taken         []uint16
		first, second uint16
	}{
		{nil, topPriority - 1, topPriority},
		{[]uint16{1, topPriority - 2}, topPriority - 1, topPriority},
		{[]uint16{topPriority - 1}, topPriority, topPriority + 1},
		{[]uint16{topPriority, 3}, topPriority + 1, topPriority + 2},
		{[]uint16{0xfffd}, 0xfffe, 0xffff},
		{[]uint16{0xfffe}, 0xfffd, 0xffff},
		{[]uint16{0xffff, 0xfffd}, 0xfffc, 0xfffe},
	} {
		var filters []netlink.Filter
		for _, priority := range test.taken {
			filters = append(filters, filterOf(1, priority))
		}
		if first, second := choosePriorities(filters); first != test.first || second != test.second {
			t.Errorf("with %x: %x and %x, want %x and %x", test.taken, first, second, test.first, test.second)
		}
	}
}

// A filter that runs before ours may cut the pod off: the log names it, once.
func TestWatchNamesEarlierFilters(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{{}, {Model: Macvtap, RxRate: 1e9}} {
		p := newPod(t)
		n, vm := p.open(t, opts), newMachine(t)
		must(t, n.Plug(t.Context(), vm))
		eth0 := linkOf(t, p.ns, "eth0").Attrs().Index
		tap := linkOf(t, p.ns, tapName(eth0)).Attrs().Index
		logger, logged := logtest.NewNullLogger()
		ctx := log.WithLogger(t.Context(), logrus.NewEntry(logger))
		for _, step := range []struct {
			change func() error
			want   []string
		}{
			{func() error { return nil }, nil},
			{func() error { return p.filter(eth0, topPriority+1) }, nil}, // it sees what ours leaves
			{func() error { return p.filter(eth0, 7) }, []string{"tc filter u32 of priority 7 on link eth0"}},
			{func() error { return p.filter(tap, 8) }, []string{"tc filter u32 of priority 8 on link " + tapName(eth0)}},
			{func() error { return p.ns.addSockets(eth0, 1) }, []string{"tc filter bpf kata_sockets of priority 1 on link eth0"}},
		} {
			must(t, step.change())
			for range 2 {
				if differs, err := n.differs(ctx); differs || err != nil {
					t.Errorf("%s: differs %v, %v", opts.Model, differs, err)
				}
			}
			var got []string
			for _, entry := range logged.AllEntries() {
				filter, _, _ := strings.Cut(entry.Message, " runs before")
				got = append(got, filter)
			}
			if diff := cmp.Diff(step.want, got); diff != "" {
				t.Errorf("%s: logged (-want +got):\n%s", opts.Model, diff)
			}
			logged.Reset()
		}
	}
}
