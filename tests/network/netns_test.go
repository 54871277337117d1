package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// changeTime bounds how long a change may take to be seen.
const changeTime = 30 * time.Second

// output runs a program of the host's and returns what it printed.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return string(out), fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// netns is the path of a network namespace; empty is the suite's own.
type netns string

// newNetns makes a network namespace as containerd does: a mount of nsfs, with
// lo up.
func newNetns(t *testing.T, d *harness.Daemon) netns {
	t.Helper()
	ns, err := makeNetns(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.remove(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// makeNetns is newNetns for those who remove it themselves.
func makeNetns(d *harness.Daemon) (netns, error) {
	ns := netns(filepath.Join(d.Dir, "netns", d.NewID("ns")))
	if err := os.MkdirAll(filepath.Dir(string(ns)), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(string(ns), nil, 0o444); err != nil {
		return "", err
	}
	if _, err := output("unshare", "--net="+string(ns), "ip", "link", "set", "lo", "up"); err != nil {
		return "", errors.Join(err, os.Remove(string(ns)))
	}
	return ns, nil
}

// remove lets the namespace go.
func (ns netns) remove() error {
	if err := unix.Unmount(string(ns), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", ns, err)
	}
	return os.Remove(string(ns))
}

// command is a program's command line in the namespace.
func (ns netns) command(args ...string) []string {
	if ns == "" {
		return args
	}
	return append([]string{"nsenter", "--net=" + string(ns)}, args...)
}

// run runs a program in the namespace and returns what it printed.
func (ns netns) run(args ...string) (string, error) {
	args = ns.command(args...)
	return output(args[0], args[1:]...)
}

// do runs commands in the namespace, one a line; all must succeed.
func (ns netns) do(t *testing.T, commands string) {
	t.Helper()
	if _, err := ns.run("sh", "-ec", commands); err != nil {
		t.Fatal(err)
	}
}

// state is what a process in the namespace sees of its network (probe state).
func (ns netns) state() (string, error) { return ns.run(probePath(), "state") }

// all is everything of the namespace that somebody can have changed, for a
// comparison of before and after: links, addresses, routes, neighbours, queues
// and filters.
func (ns netns) all() (string, error) {
	return ns.run("sh", "-ec", `
		ip -o link; ip -o addr; ip route show table all; ip -6 route show table all
		ip neigh show nud permanent; tc qdisc
		for link in $(ip -o link | cut -d: -f2 | cut -d@ -f1); do
			tc filter show dev $link ingress 2>/dev/null || true
			tc filter show dev $link root
		done`)
}

// must is for a state that has to be readable.
func must(t *testing.T, read func() (string, error)) string {
	t.Helper()
	text, err := read()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hostNetwork is what the suite must leave as it was: the links, addresses and
// routes of its namespace, and firewall rules.
func hostNetwork() (string, error) {
	all, err := netns("").all()
	rules, rulesErr := firewallRules()
	return all + strings.Join(rules, "\n"), errors.Join(err, rulesErr)
}

// eventually waits until what read returns is want, and shows the difference
// when it does not come to that.
func eventually(ctx context.Context, t *testing.T, what, want string, read func() (string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	for {
		got, err := read()
		if err == nil && got == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s (-want +got), error %v:\n%s", what, err, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// settled waits until no IPv6 address of the namespace is tentative, and
// returns all of it.
func settled(ctx context.Context, t *testing.T, ns netns) string {
	t.Helper()
	eventually(ctx, t, "tentative addresses", "", func() (string, error) { return ns.run("ip", "-o", "addr", "show", "tentative") })
	return must(t, ns.all)
}
