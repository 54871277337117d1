package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// resolverRules redirect port 53 of 127.0.0.11 to the port there on which
// Docker's resolver listens (moby, libnetwork/resolver_unix.go).
const resolverRules = `
	iptables -t nat -A OUTPUT -d 127.0.0.11/32 -p udp --dport 53 -j DNAT --to-destination 127.0.0.11:35353
	iptables -t nat -A OUTPUT -d 127.0.0.11/32 -p tcp --dport 53 -j DNAT --to-destination 127.0.0.11:35353`

// withResolvConf mounts a resolv.conf that names one server.
func withResolvConf(t *testing.T, server string) oci.SpecOpts {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver "+server+"\noptions ndots:0 timeout:30\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return oci.WithMounts([]specs.Mount{{Destination: "/etc/resolv.conf", Type: "bind", Source: path, Options: []string{"rbind", "ro"}}})
}

// resolving adds a container that uses that server.
func resolving(ctx context.Context, t *testing.T, p *harness.Pod, server string, serve ...string) *pod {
	t.Helper()
	config := probeConfig(serve...)
	config.Spec = append(config.Spec, withResolvConf(t, server))
	box, err := p.Add(ctx, config)
	if err != nil {
		t.Fatalf("add container: %v", err)
	}
	if err := box.Start(ctx); err != nil {
		t.Fatalf("start container: %v", err)
	}
	awaitReady(ctx, t, box.Out, box.Err)
	return &pod{Pod: p, box: box}
}

// Docker's resolver is a host process in the pod's namespace. Names are
// resolved there, by UDP and, if an answer is too large for that, by TCP.
func TestResolverOfTheEngine(t *testing.T) {
	for _, test := range []struct {
		name    string
		engines bool
		ns      func(*testing.T, *harness.Daemon) netns
	}{
		{"namespace of the engine", true, newNetns},
		{"namespace of the task", false, func(*testing.T, *harness.Daemon) netns { return "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			ns := test.ns(t, d)
			bare := barePod(ctx, t, d, ns)
			if ns == "" {
				ns = netns(fmt.Sprintf("/proc/%d/ns/net", bare.Sandbox.Task.Pid()))
				ns.do(t, "ip link set lo up")
			}
			ns.do(t, resolverRules)
			ns.serve(ctx, t, "dns://127.0.0.11:35353")
			p := resolving(ctx, t, bare, "127.0.0.11", "tcp://127.0.0.1:7001")
			p.checks(ctx, t, "resolve://db.example?count=1", "resolve://large.example?count=100", "resolve://db.example?count=1")
			if _, err := p.run(ctx, "/probe/probe", "check", "resolve://none.example?count=1"); err == nil {
				t.Error("a name that is not there was found")
			}
			if bed.runtime.VM { // nothing else of the namespace is reached
				ns.serve(ctx, t, "tcp://127.0.0.11:7002")
				p.checks(ctx, t, "closed://127.0.0.11:7002")
			}
			if test.engines { // the guest's ports still answer there
				ns.checks(t, "tcp://127.0.0.1:7001?bytes=100000")
			}
		})
	}
}

// The pod's own resolver, at a loopback address without a resolver of the
// engine, is left as it is.
func TestResolverOfThePod(t *testing.T) {
	ctx, d := begin(t)
	p := resolving(ctx, t, barePod(ctx, t, d, newNetns(t, d)), "127.0.0.53", "dns://127.0.0.53:53")
	p.checks(ctx, t, "resolve://db.example?count=1", "resolve://large.example?count=100")
}

// A container's server can listen on port 53 of every address, as it can beside
// Docker's rules, which leave the port free. The engine's resolver still
// answers.
func TestServerBesideTheResolver(t *testing.T) {
	ctx, d := begin(t)
	ns := newNetns(t, d)
	bare := barePod(ctx, t, d, ns)
	ns.do(t, resolverRules)
	ns.serve(ctx, t, "dns://127.0.0.11:35353")
	p := resolving(ctx, t, bare, "127.0.0.11", "tcp://0.0.0.0:53", "udp://0.0.0.0:53")
	p.checks(ctx, t, "resolve://db.example?count=1", "resolve://large.example?count=100", "tcp://127.0.0.1:53?bytes=100000")
}
