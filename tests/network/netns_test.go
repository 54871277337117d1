package network

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// changeTime bounds the time until a change is seen.
const changeTime = 30 * time.Second

// netns is the path of a network namespace; empty is the suite's own.
type netns string

// newNetns makes a network namespace with lo up, and removes it at the test's
// end.
func newNetns(t *testing.T, d *harness.Daemon) netns {
	t.Helper()
	ns, err := d.NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Remove(); err != nil {
			t.Error(err)
		}
	})
	return netns(ns)
}

// run runs a program in the namespace and returns what it printed.
func (ns netns) run(args ...string) (string, error) { return harness.Netns(ns).Run(args...) }

// do runs commands in the namespace, one a line; all must succeed.
func (ns netns) do(t *testing.T, commands string) {
	t.Helper()
	if _, err := ns.run("sh", "-ec", commands); err != nil {
		t.Fatal(err)
	}
}

// state returns what a process in the namespace sees of its network (probe
// state).
func (ns netns) state() (string, error) { return ns.run(probePath(), "state") }

// all returns everything in the namespace that can have been changed, for a
// comparison of before and after: links, addresses, routes, rules, neighbours, queues
// and filters. It leaves out the length of a link's queue, which the kernel gives
// to a link without one (CNI's veth) when it gets its first qdisc
// (net/sched/sch_api.c, qdisc_create).
func (ns netns) all() (string, error) {
	return ns.run("sh", "-ec", `
		ip -o link | sed -E 's/ (qlen [0-9]+)?\\/\\/'; ip -o addr; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule
		ip neigh show nud permanent; tc qdisc
		for link in $(ip -o link | cut -d: -f2 | cut -d@ -f1); do
			tc filter show dev $link ingress 2>/dev/null || true
			tc filter show dev $link root
		done`)
}

// must returns what read returns, and ends the test on an error.
func must(t *testing.T, read func() (string, error)) string {
	t.Helper()
	text, err := read()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hostNetwork returns what the suite must leave as it was: the links, addresses
// and routes of its namespace, and firewall rules.
func hostNetwork() (string, error) {
	all, err := netns("").all()
	rules, rulesErr := firewallRules()
	return all + strings.Join(rules, "\n"), errors.Join(err, rulesErr)
}

// eventually waits until read returns want; if that takes too long, it shows
// the difference.
func eventually(ctx context.Context, t *testing.T, what, want string, read func() (string, error)) {
	t.Helper()
	over := time.After(changeTime)
	for {
		got, err := read()
		if err == nil && got == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s: %v", what, ctx.Err())
			return
		case <-over:
			t.Errorf("%s (-want +got), error %v:\n%s", what, err, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// settled waits until the kernel has noticed that links are up, and no IPv6
// address of the namespace is tentative any more; it returns all of it.
func settled(ctx context.Context, t *testing.T, ns netns) (all string) {
	t.Helper()
	eventually(ctx, t, "unsettled lines of "+string(ns), "", func() (string, error) {
		var err error
		if all, err = ns.all(); err != nil {
			return "", err
		}
		var unsettled strings.Builder
		for line := range strings.Lines(all) {
			if strings.Contains(line, " tentative ") || strings.Contains(line, " LOWERLAYERDOWN ") {
				unsettled.WriteString(line)
			}
		}
		return unsettled.String(), nil
	})
	return all
}
