package cri

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

// withSandboxer is within for pods without a pause container.
func withSandboxer(t *testing.T, test func(context.Context, *testing.T, *env.Env)) {
	t.Helper()
	if !bed.runtime.VM {
		t.Skipf("%s has no sandbox API", bed.runtime.Name)
	}
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		if e.Daemon.Release().ConfigVersion < 3 {
			t.Skip("containerd 1.x has no sandboxer")
		}
		test(ctx, t, e)
	})
}

// TestPodIsShared for such a pod, whose containers cannot share their PIDs: the shim
// writes the files that an engine with a pause container writes.
func TestPodIsSharedWithoutPause(t *testing.T) {
	withSandboxer(t, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runShared(ctx, t, e, env.SandboxHandler, containerPID)
		own := map[string]any{"linux": withPID(containerPID)}
		first, second := p.start(ctx, t, forever, own), p.start(ctx, t, forever, own)
		p.checkFiles(ctx, t, first, second)
		p.checkMemory(ctx, t, first, second)
		checkPIDs(ctx, t, p, map[string]int{first: 1, second: 1})
	})
}

// A pod without a pause container has what its configuration says: it is all that a
// shim gets of it.
func TestSandboxer(t *testing.T) {
	withSandboxer(t, func(ctx context.Context, t *testing.T, e *env.Env) {
		// As the kubelet says it: each container has its own processes.
		const own = `"security_context": {"namespace_options": {"pid": 1}}`
		p := runpWith(ctx, t, e, "sandboxer", env.SandboxHandler, `"sysctls": {"net.core.somaxconn": "77"}, `+own)
		container := map[string]any{"linux": map[string]any{"security_context": map[string]any{"namespace_options": map[string]any{"pid": 1}}}}
		id := p.start(ctx, t, forever, container)
		other := p.start(ctx, t, forever, container)
		p.exec(ctx, t, other, "sh", "-c", "echo shared >/dev/shm/file")
		host, err := os.ReadFile("/etc/resolv.conf")
		if err != nil {
			t.Fatal(err)
		}
		name, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for what, want := range map[string]string{
			"/proc/sys/net/core/somaxconn": "77", "/etc/resolv.conf": strings.TrimSpace(string(host)), "/etc/hostname": name, "/dev/shm/file": "shared",
		} {
			if got := p.exec(ctx, t, id, "cat", what); !strings.Contains(got, want) {
				t.Errorf("%s is %q, want %q", what, got, want)
			}
		}
	})
}
