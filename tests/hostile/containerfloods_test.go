package hostile

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// The addresses of a pod's network card and of its other end.
const (
	podAddress  = "10.98.7.2"
	hostAddress = "10.98.7.1"
)

// A container that uses the share, the memory or the network as fast as it can
// costs the host a bounded amount of memory and log, ends no other container of
// its pod, and does not affect other pods.
func TestFloodsOfContainers(t *testing.T) {
	for kind, args := range map[string][]string{
		"share": nil, "memory": nil, "packets": {hostAddress + ":9"}, "calls": {hostAddress + ":9000"},
	} {
		t.Run(kind, func(t *testing.T) {
			least, _ := floodTime(t)
			ctx, g := lyingFor(t, "", wholeTimeout)
			var network []oci.SpecOpts
			if args != nil {
				network = connected(ctx, t, g.Daemon)
			}
			works := neighbour(ctx, t)
			m := measured{before: atRest(works), logMark: g.LogSize()}
			p := newPodWith(ctx, t, g, network)
			c := addAttacker(ctx, t, p)
			flood, err := c.Exec(ctx, harness.ExecConfig{Args: append([]string{inside, "flood", kind}, args...)})
			if err == nil {
				err = flood.Start(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			for time.Since(begin) < least || done(flood) == 0 && time.Since(begin) < least+answerTimeout {
				m.sample(t, p, works)
			}
			if done(flood) == 0 {
				t.Errorf("the flood has done nothing: %s", flood.Err.String())
			}
			p.answers(ctx)
			p.alive()
			m.check(t, p, done(flood))
			endFlood(ctx, t, flood)
			p.remove(ctx)
		})
	}
}

// done returns how often a flood has succeeded so far.
func done(flood *harness.Process) int {
	lines := strings.Split(flood.Out.String(), "\n")
	if len(lines) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(lines[len(lines)-2]) // the last has no newline yet
	return n
}

// endFlood kills a flood that must still run.
func endFlood(ctx context.Context, t *testing.T, flood *harness.Process) {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := flood.Kill(bounded, syscall.SIGKILL); err != nil {
		t.Errorf("the flood has ended: %v: %s", err, flood.Err.String())
	}
	wantKilled(bounded, t, flood)
	if err := flood.Remove(ctx); err != nil {
		t.Error(err)
	}
}

// connected makes a network namespace for a pod, with a card whose other end is
// in a second namespace, which stands for the host. A program there accepts
// connections.
func connected(ctx context.Context, t *testing.T, d *harness.Daemon) []oci.SpecOpts {
	t.Helper()
	pod, host := newNetns(t, d), newNetns(t, d)
	for _, step := range []struct {
		in   harness.Netns
		line string
	}{
		{pod, "link add eth0 type veth peer name peer0 netns " + string(host)},
		{pod, "addr add " + podAddress + "/24 dev eth0"}, {pod, "link set eth0 up"},
		{host, "addr add " + hostAddress + "/24 dev peer0"}, {host, "link set peer0 up"},
	} {
		if _, err := step.in.Run(append([]string{"ip"}, strings.Fields(step.line)...)...); err != nil {
			t.Fatal(err)
		}
	}
	sink := host.Command(ctx, attackerOnHost(), "sink", hostAddress+":9000")
	if err := sink.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sink.Process.Kill()
		_ = sink.Wait()
	})
	return []oci.SpecOpts{harness.InNetns(pod)}
}

func newNetns(t *testing.T, d *harness.Daemon) harness.Netns {
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
	return ns
}
