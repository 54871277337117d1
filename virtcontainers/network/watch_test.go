package network

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/fake"
)

// watching is a Network that is watched; each call of changed adds a token.
type watching struct {
	changes chan struct{}
	stop    func()
}

// watch follows a namespace as a sandbox does, until the test ends.
func watch(t *testing.T, n *Network, vm Machine) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{changes: make(chan struct{}, 100)}
	var run sync.WaitGroup
	run.Go(func() {
		err := n.Watch(ctx, func() error {
			err := n.Plug(ctx, vm)
			if err == nil {
				w.changes <- struct{}{}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	w.stop = func() { cancel(); run.Wait() }
	t.Cleanup(w.stop)
	return w
}

// until waits for changes until the guest's interfaces are those wanted.
func (w *watching) until(t *testing.T, n *Network, want ...string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !cmp.Equal(interfaces(n), want) {
		select {
		case <-w.changes:
		case <-deadline:
			t.Fatalf("the guest has %v, want %v", interfaces(n), want)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	p.veth(t, "before", "10.2.0.2/24") // before it is watched
	w := watch(t, n, vm)
	w.until(t, n, "eth0", "before")
	p.veth(t, "late", "10.3.0.2/24")
	w.until(t, n, "eth0", "before", "late")
	must(t, p.ns.LinkDel(linkOf(t, p.ns, "before")))
	w.until(t, n, "eth0", "late")
	w.stop()
	for {
		select {
		case <-w.changes:
			continue
		default:
		}
		break
	}
	if differs, err := n.differs(t.Context()); differs || err != nil {
		t.Errorf("it differs from what was plugged: %v, %v", differs, err)
	}
}

// TestOwnChangesAreNone checks that what Plug makes is not a change: the
// namespace's fingerprint is the same with the taps as without.
func TestOwnChangesAreNone(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	if differs, err := n.differs(t.Context()); !differs || err != nil {
		t.Errorf("before the first Plug: %v, %v", differs, err)
	}
	must(t, n.Plug(t.Context(), vm))
	for _, change := range []struct {
		what string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"a link without an address", func() { p.veth(t, "bare") }, false},
		{"an address", func() { p.address(t, "bare", "10.7.0.1/24") }, true},
		{"the same again", func() {}, false},
		{"an MTU", func() { must(t, p.ns.LinkSetMTU(linkOf(t, p.ns, "eth0"), 1300)) }, true},
		{"a bad MTU", func() { must(t, p.ns.LinkSetMTU(linkOf(t, p.ns, "bare"), 65535)) }, true},
	} {
		change.do()
		if differs, err := n.differs(t.Context()); differs != change.want || err != nil {
			t.Errorf("after %s: differs %v, %v", change.what, differs, err)
		}
	}
}

// A program in the namespace may take the redirects away: with its own qdisc in
// place of a link's or a tap's. Nothing else has changed then.
func TestWatchRestoresRedirects(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{{RxRate: 1e9}, {Model: Macvtap, RxRate: 1e9}} {
		p := newPod(t)
		n, vm := p.open(t, opts), newMachine(t)
		must(t, n.Plug(t.Context(), vm))
		w := watch(t, n, vm)
		eth0 := linkOf(t, p.ns, "eth0").Attrs().Index
		tap, limited := linkOf(t, p.ns, tapName(eth0)).Attrs().Index, tapName(eth0)
		if opts.Model == Macvtap {
			limited = shaperName(eth0)
		}
		for what, change := range map[string]func() error{
			"no qdisc":               func() error { return p.ns.removeIngress(eth0) },
			"another qdisc":          func() error { return replaceQdisc(p.ns, eth0) },
			"another, with filters":  func() error { return errors.Join(replaceQdisc(p.ns, eth0), p.filter(eth0, 0), p.filter(eth0, 0)) },
			"no qdisc at the tap":    func() error { return p.ns.removeIngress(tap) },
			"another at the tap":     func() error { return replaceQdisc(p.ns, tap) },
			"another, with a filter": func() error { return errors.Join(replaceQdisc(p.ns, tap), p.filter(tap, 0)) },
			"no filter at the tap": func() error {
				return errors.Join(p.ns.removeRedirect(tap, topPriority), p.ns.removeRedirect(tap, topPriority+2))
			},
		} {
			time.Sleep(2 * quietTime) // the watch has seen what was before
			must(t, change())
			select {
			case <-w.changes:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s, %s: no change is seen", opts.Model, what)
			}
			_, before := bucket(t, p.ns, limited)
			ping(t, p, vm.taps[vm.order[0]][0], "eth0")
			if _, after := bucket(t, p.ns, limited); opts.RxRate != 0 && after == before {
				t.Errorf("%s, %s: what the guest receives is not limited", opts.Model, what)
			}
		}
		w.stop()
	}
}

// replaceQdisc does what programs do that run theirs on each link.
func replaceQdisc(ns *namespace, index int) error {
	return errors.Join(ns.removeIngress(index), ns.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}))
}

// filter adds another program's filter, which matches no packet. Without a priority
// it gets the kernel's.
func (p *pod) filter(index int, priority uint16) error {
	other := filterOf(index, priority)
	other.Protocol, other.Actions = unix.ETH_P_IPX, []netlink.Action{netlink.NewMirredAction(index)}
	return p.ns.FilterAdd(other)
}

// A redirect that leads nowhere, because its link was in another namespace, drops all that
// reaches it. It goes wherever it is, and no filter of another program's does.
func TestRedirectOfALinkThatLeavesTwice(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	elsewhere, _ := newNamespace(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	tap := linkOf(t, p.ns, tapName(linkOf(t, p.ns, "eth0").Attrs().Index)).Attrs().Index
	foreign := filterOf(tap, topPriority)
	foreign.Sel = dhcpAnswer()
	foreign.Actions = []netlink.Action{netlink.NewMirredAction(tap)}
	must(t, errors.Join(replaceQdisc(p.ns, tap), p.ns.FilterAdd(foreign)))
	for range 2 {
		must(t, p.ns.LinkSetNsFd(linkOf(t, p.ns, "eth0"), int(elsewhere.file.Fd())))
		must(t, elsewhere.LinkSetNsFd(linkOf(t, elsewhere, "eth0"), int(p.ns.file.Fd())))
		p.address(t, "eth0", "10.1.0.2/24")
		must(t, n.Plug(t.Context(), vm))
		ping(t, p, vm.taps[vm.order[0]][0], "eth0")
	}
	filters, err := p.ns.filters(tap)
	must(t, err)
	if len(filters) != 2 || filters[0].Attrs().Priority != topPriority {
		t.Errorf("want the other program's filter and ours, got %v", filters)
	}
}

// A repair that fails is tried again.
func TestFailedRepairIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{TxRate: 1e9}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	eth0 := linkOf(t, p.ns, "eth0").Attrs().Index
	attrs := netlink.QdiscAttrs{LinkIndex: eth0, Handle: netlink.MakeHandle(7, 0), Parent: netlink.HANDLE_ROOT}
	other := &netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "pfifo"}
	must(t, errors.Join(p.ns.removeIngress(eth0), p.ns.removeRate(eth0), p.ns.QdiscAdd(other)))
	if err := n.Plug(t.Context(), vm); !errors.Is(err, unix.EEXIST) {
		t.Fatalf("over another program's root qdisc: %v", err)
	}
	must(t, p.ns.QdiscDel(other))
	if differs, err := n.differs(t.Context()); !differs || err != nil {
		t.Errorf("differs %v, %v", differs, err)
	}
	must(t, n.Plug(t.Context(), vm))
	ping(t, p, vm.taps[vm.order[0]][0], "eth0")
	before := inventory(t, p.ns)
	must(t, n.Plug(t.Context(), vm))
	if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
		t.Errorf("the next changes something:\n%s", diff)
	}
}

func TestWatchTriesAgain(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n := p.open(t, Options{})
	var m fake.Monitor
	vm := newMachineOf(t, &m)
	must(t, n.Plug(t.Context(), vm))
	failed := make(chan struct{}, 10)
	m.Hook(fake.StepAttach, func(context.Context, *fake.VM) error {
		m.Hook(fake.StepAttach, nil)
		failed <- struct{}{}
		return errInjected
	})
	w := watch(t, n, vm)
	p.veth(t, "late", "10.3.0.2/24")
	<-failed
	w.until(t, n, "eth0", "late") // nothing more has happened in the namespace
}

// A watch that is begun again makes up for what failed in the one before.
func TestWatchAfterAFailedChange(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n := p.open(t, Options{})
	must(t, n.Plug(t.Context(), newMachineOf(t, new(fake.Monitor))))
	p.veth(t, "late", "10.3.0.2/24")
	for _, result := range []error{errInjected, nil} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		calls := 0
		err := n.Watch(ctx, func() error {
			calls++
			cancel()
			return result
		})
		if calls != 1 || err != nil {
			t.Errorf("%d changes, %v, of one that returns %v", calls, err, result)
		}
	}
}

// Events that change nothing for the guest, such as neighbours that come and go, do
// not put off a retry.
func TestWatchTriesAgainAmongEvents(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	synctest.Test(t, func(t *testing.T) {
		n := p.open(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		w := news{happened: make(chan struct{}, 1), ended: make(chan error, 1)}
		var events sync.WaitGroup
		defer events.Wait()
		defer cancel()
		events.Go(func() {
			defer cancel()
			for range 40 {
				time.Sleep(300 * time.Millisecond)
				if ctx.Err() != nil {
					return
				}
				select {
				case w.happened <- struct{}{}:
				default:
				}
			}
		})
		begin := time.Now()
		var took []time.Duration
		err := n.watch(ctx, w, func() error { // the first look is a change
			if took = append(took, time.Since(begin)); len(took) == 3 {
				cancel()
			}
			return errInjected
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch: %v", err)
		}
		for i, earliest := range []time.Duration{0, retryTime, 3 * retryTime} {
			if len(took) != 3 || took[i] < earliest || took[i] > earliest+2*changeTime {
				t.Fatalf("it was tried after %v, want 0, 1 s and 3 s", took)
			}
		}
	})
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n := p.open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := n.Watch(ctx, func() error { cancel(); return nil }) // the first look is a change
	if err != nil {
		t.Errorf("Watch: %v", err)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := news{happened: make(chan struct{}, 1), ended: make(chan error, 1)}
		for _, tt := range []struct {
			every, lasts, want time.Duration
		}{
			{time.Hour, 0, quietTime},
			{20 * time.Millisecond, 200 * time.Millisecond, 200*time.Millisecond + quietTime},
			{20 * time.Millisecond, 10 * time.Second, changeTime},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for begin := time.Now(); ctx.Err() == nil && time.Since(begin) <= tt.lasts; time.Sleep(tt.every) {
					select {
					case w.happened <- struct{}{}:
					default:
					}
				}
			}()
			begin := time.Now()
			if err := w.settle(t.Context(), time.Time{}); err != nil {
				t.Errorf("settle: %v", err)
			}
			if took := time.Since(begin); took != tt.want {
				t.Errorf("changes every %v for %v: settled after %v, want %v", tt.every, tt.lasts, took, tt.want)
			}
			cancel()
			time.Sleep(2 * time.Hour)
			select {
			case <-w.happened:
			default:
			}
		}
		begin := time.Now()
		if err := w.settle(t.Context(), begin.Add(time.Minute)); time.Since(begin) != time.Minute || err != nil {
			t.Errorf("until the retry: %v, %v", time.Since(begin), err)
		}
		w.ended <- errInjected
		if err := w.settle(t.Context(), time.Time{}); !errors.Is(err, errInjected) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestNextPause(t *testing.T) {
	t.Parallel()
	var pause time.Duration
	var got []time.Duration
	for range 9 {
		pause = nextPause(pause, errInjected)
		got = append(got, pause/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{1, 2, 4, 8, 16, 32, 64, 64, 64}, got); diff != "" {
		t.Error(diff)
	}
	if pause := nextPause(pause, nil); pause != 0 {
		t.Errorf("after a success: %v", pause)
	}
}

// TestOverrun fills the subscription's buffer, so that the kernel drops
// messages: that counts as a change and does not end the watch.
func TestOverrun(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n := p.open(t, Options{})
	file, err := n.subscribe(t.Context())
	must(t, err)
	raw, err := file.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) }))
	must(t, err)
	l := linkOf(t, p.ns, "eth0")
	for i := range 50 {
		must(t, p.ns.LinkSetMTU(l, 1300+i))
	}
	w := news{happened: make(chan struct{}, 1), ended: make(chan error, 1)}
	overrun, err := unix.GetsockoptInt(descriptor(t, file), unix.SOL_SOCKET, unix.SO_ERROR)
	must(t, err)
	if unix.Errno(overrun) != unix.ENOBUFS {
		t.Errorf("the socket's error is %v, want ENOBUFS", unix.Errno(overrun))
	}
	var reader sync.WaitGroup
	reader.Go(func() { w.follow(file) })
	<-w.happened
	must(t, p.ns.LinkSetMTU(l, 1400))
	<-w.happened
	file.Close()
	reader.Wait()
}

func descriptor(t *testing.T, file interface{ Fd() uintptr }) int {
	t.Helper()
	return int(file.Fd())
}

// A change that another caller's Plug has met is a change for the watch all the same:
// that Plug may have failed, or what follows it.
func TestWatchSeesWhatAnotherPlugHasMet(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	if differs, err := n.differs(t.Context()); differs || err != nil {
		t.Errorf("after the first Plug: differs %v, %v", differs, err)
	}
	p.veth(t, "late", "10.3.0.2/24")
	must(t, n.Plug(t.Context(), vm))
	for _, want := range []bool{true, false} {
		if differs, err := n.differs(t.Context()); differs != want || err != nil {
			t.Errorf("after another Plug: differs %v, want %v, %v", differs, want, err)
		}
	}
}
