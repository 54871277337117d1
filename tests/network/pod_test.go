package network

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// port is where a pod's server listens, TCP and UDP, on every address.
const port = 7000

// servers are the probe's servers on that port.
var servers = []string{fmt.Sprintf("tcp://:%d", port), fmt.Sprintf("udp://:%d", port)}

// inNetns puts a pod into a network namespace; an empty path gives it a new
// one, as Docker does.
func inNetns(ns netns) oci.SpecOpts { return harness.InNetns(harness.Netns(ns)) }

// pod is a running pod with one container that has the probe.
type pod struct {
	*harness.Pod
	box *harness.Container
}

// newPod makes a pod in a network namespace, whose container runs the probe's
// server. It is removed when the test ends.
func newPod(ctx context.Context, t *testing.T, d *harness.Daemon, ns netns, spec ...oci.SpecOpts) *pod {
	t.Helper()
	return serving(ctx, t, barePod(ctx, t, d, ns, spec...), servers...)
}

// barePod makes a pod with only a pause container.
func barePod(ctx context.Context, t *testing.T, d *harness.Daemon, ns netns, spec ...oci.SpecOpts) *harness.Pod {
	t.Helper()
	p, err := d.NewPod(ctx, "pod", append(spec, inNetns(ns))...)
	if err != nil {
		t.Fatalf("make pod: %v", err)
	}
	t.Cleanup(func() { removed(t, "pod", p.Remove) })
	return p
}

// serving adds the container with a server for each target.
func serving(ctx context.Context, t *testing.T, p *harness.Pod, targets ...string) *pod {
	t.Helper()
	box, err := p.Add(ctx, probeConfig(targets...))
	if err != nil {
		t.Fatalf("add container: %v", err)
	}
	if err := box.Start(ctx); err != nil {
		t.Fatalf("start container: %v", err)
	}
	awaitReady(ctx, t, box.Out, box.Err)
	return &pod{Pod: p, box: box}
}

// probeConfig returns a container that serves each target.
func probeConfig(targets ...string) harness.ContainerConfig {
	return harness.ContainerConfig{
		Name: "probe", Args: append([]string{"/probe/probe", "serve"}, targets...), Spec: []oci.SpecOpts{withProbe()},
	}
}

// withProbe mounts the probe.
func withProbe() oci.SpecOpts {
	return oci.WithMounts([]specs.Mount{{
		Destination: "/probe", Type: "bind", Source: bed.tools, Options: []string{"rbind", "ro"},
	}})
}

// removed calls a clean-up with its own timeout.
func removed(t *testing.T, what string, remove func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := remove(ctx); err != nil {
		t.Errorf("remove %s: %v", what, err)
	}
}

// run runs a command in the pod's container and returns what it printed.
func (p *pod) run(ctx context.Context, args ...string) (string, error) {
	return runIn(ctx, p.box, args...)
}

func runIn(ctx context.Context, c *harness.Container, args ...string) (string, error) {
	e, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: args})
	if err == nil && code != 0 {
		err = fmt.Errorf("exec %v: exit code %d: %s", args, code, strings.TrimSpace(e.Err.String()))
	}
	if err != nil {
		return "", err
	}
	return e.Out.String(), nil
}

// state is what the container sees of its network (probe state).
func (p *pod) state(ctx context.Context) func() (string, error) {
	return func() (string, error) { return p.run(ctx, "/probe/probe", "state") }
}

// checks runs the probe's checks in the container.
func (p *pod) checks(ctx context.Context, t *testing.T, targets ...string) {
	t.Helper()
	out, err := p.run(ctx, append([]string{"/probe/probe", "check"}, targets...)...)
	if err != nil {
		t.Errorf("from the pod: %v", err)
	}
	t.Logf("from the pod:\n%s", out)
}

// checks runs the probe's checks in a namespace, by a process of the host.
func (ns netns) checks(t *testing.T, targets ...string) {
	t.Helper()
	out, err := ns.run(append([]string{probePath(), "check"}, targets...)...)
	if err != nil {
		t.Errorf("from namespace %q: %v", ns, err)
	}
	t.Logf("from namespace %q:\n%s", ns, out)
}

// targets returns the checks for a server: TCP with 1 MiB, and a UDP datagram
// that fills a frame, for each address.
func targets(mtu int, addrs ...netip.Addr) []string {
	var list []string
	for _, a := range addrs {
		to := netip.AddrPortFrom(a, port)
		list = append(list, fmt.Sprintf("tcp://%s?bytes=%d", to, 1<<20), fmt.Sprintf("udp://%s?mtu=%d", to, mtu))
	}
	return list
}

// serve runs the probe's server in a namespace, by a process of the host, until
// the test ends or stop is called.
func (ns netns) serve(ctx context.Context, t *testing.T, targets ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	cmd := harness.Netns(ns).Command(ctx, append([]string{probePath(), "serve"}, targets...)...)
	out := &harness.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(stop)
	awaitReady(ctx, t, out, out)
	return stop
}

// awaitReady waits until a server listens.
func awaitReady(ctx context.Context, t *testing.T, out, errors *harness.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	if err := out.Await(ctx, "ready"); err != nil {
		t.Fatalf("%v; stderr %s", err, errors)
	}
}

// sameState waits until the container sees the same network as a process in
// the namespace does.
func (p *pod) sameState(ctx context.Context, t *testing.T, ns netns) {
	t.Helper()
	over := time.After(changeTime)
	for {
		want, wantErr := ns.state()
		got, err := p.state(ctx)()
		if err == nil && wantErr == nil && want == got {
			return
		}
		select {
		case <-over:
			t.Errorf("the pod's network is not that of namespace %s (-want +got), errors %v, %v:\n%s", ns, wantErr, err,
				cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// configure adds to the runtime's configuration for the pods that the test
// makes from now on. It does nothing for a runtime without a configuration.
func configure(t *testing.T, d *harness.Daemon, text string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(d.KataConfigPath()), "config.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "50-test.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
}
