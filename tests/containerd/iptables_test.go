package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// serveOnPort serves port 7000, for IPv4 and IPv6.
const serveOnPort = `exec nc -ll -p 7000 -e echo hello`

// answers says at which addresses that port can be reached.
const answers = `for ip in 127.0.0.1 ::1; do [ "$(nc -w 3 $ip 7000 </dev/null 2>/dev/null)" = hello ] && echo "$ip answers"; done; true`

// The host sets rules in the guest, which apply to the pod's containers, and reads
// them back, those of IPv4 and IPv6 apart; with an image that has the tools.
func TestIPTables(t *testing.T) {
	needVM(t)
	initrd := filepath.Join(bed.layout.Build(), "guest-iptables", "initrd.img")
	if _, err := os.Stat(initrd); err != nil {
		t.Skipf("no guest image with iptables (make guest-image-iptables): %v", err)
	}
	withTools := func(o *harness.Options) { o.Kata.Initrd = initrd }
	newestOwn(t, withTools, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		id := pod.Sandbox.Box.ID()
		c := add(ctx, t, pod, harness.ContainerConfig{Name: "server", Args: script(serveOnPort)})
		tables := func(stdin, verb string, args ...string) (string, error) {
			return iptablesOf(ctx, d, id, stdin, verb, args...)
		}
		if got := works(ctx, t, c, answers); got != "127.0.0.1 answers\n::1 answers\n" {
			t.Fatalf("before any rule: %q", got)
		}
		for _, family := range []struct{ flag, address, other string }{{"--v6=false", "127.0.0.1", "::1"}, {"--v6", "::1", "127.0.0.1"}} {
			const drop = "-A INPUT -p tcp -m tcp --dport 7000 -m comment --comment closed -j DROP"
			if out, err := tables("*filter\n"+drop+"\nCOMMIT\n", "set", family.flag); err != nil || out != "" {
				t.Errorf("set %s: %q, %v", family.flag, out, err)
			}
			if got := works(ctx, t, c, answers); got != family.other+" answers\n" {
				t.Errorf("with the rule, %s: %q", family.flag, got)
			}
			got, err := tables("", "get", family.flag)
			if err != nil || !strings.Contains(got, "\n"+drop+"\n") {
				t.Errorf("get %s: %q, %v", family.flag, got, err)
			}
			// What was read can be set.
			if _, err := tables(strings.ReplaceAll(got, drop+"\n", ""), "set", family.flag); err != nil {
				t.Errorf("set %s without the rule: %v", family.flag, err)
			}
			if got := works(ctx, t, c, answers); got != "127.0.0.1 answers\n::1 answers\n" {
				t.Errorf("without the rule, %s: %q", family.flag, got)
			}
		}
		if _, err := tables("*filter\n-A INPUT -j NONE\nCOMMIT\n", "set"); err == nil || !strings.Contains(err.Error(), "iptables-restore: exit status ") || !strings.Contains(err.Error(), "NONE") {
			t.Errorf("a rule that is wrong: %v", err)
		}
		var many strings.Builder
		for n := range 8000 {
			fmt.Fprintf(&many, "-A FORWARD -p tcp -m tcp --dport %d -m multiport --sports 1,2 -m limit --limit 7/sec -j ACCEPT\n", n)
		}
		if _, err := tables("*filter\n"+many.String()+"COMMIT\n", "set"); err != nil {
			t.Errorf("%d bytes of rules: %v", many.Len(), err)
		}
		if got, err := tables("", "get"); err != nil || strings.Count(got, "-A FORWARD") != 8000 {
			t.Errorf("%d bytes of rules: %v", len(got), err)
		}
	})
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		if _, err := iptablesOf(ctx, d, pod.Sandbox.Box.ID(), "", "get"); err == nil || !strings.Contains(err.Error(), "no iptables-save: use one that has it (make guest-image-iptables") {
			t.Errorf("without the tools: %v", err)
		}
	})
}

// iptablesOf runs kata-runtime iptables and returns what it writes.
func iptablesOf(ctx context.Context, d *harness.Daemon, id, stdin, verb string, args ...string) (string, error) {
	cmd := kataRuntime(ctx, d, append([]string{"iptables", verb, "--sandbox-id", id}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if failed, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it as it is
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}
