package cri

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/cri/images"
)

// forever is a container that waits to be stopped.
var forever = []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"}

// exec runs a command in a container and returns what it printed.
func (p *pod) exec(ctx context.Context, t *testing.T, id string, command ...string) string {
	t.Helper()
	return p.do(ctx, t, append([]string{"exec", "--sync", id}, command...)...)
}

// runShared runs a pod of a runtime handler with a name, DNS settings and a NamespaceMode
// of its PIDs.
func runShared(ctx context.Context, t *testing.T, e *env.Env, handler string, pids int) *pod {
	t.Helper()
	p := &pod{e: e, dir: t.TempDir()}
	p.config = filepath.Join(p.dir, "sandbox-config.json")
	data, err := json.Marshal(map[string]any{
		"metadata":      map[string]any{"name": "shared", "namespace": "default", "uid": e.Daemon.NewID("shared"), "attempt": 1},
		"log_directory": filepath.Join(p.dir, "logs"),
		"hostname":      "podname",
		"dns_config":    map[string]any{"servers": []string{"10.9.8.7"}, "searches": []string{"svc.example"}, "options": []string{"ndots:5"}},
		"linux":         withPID(pids),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, data, 0o644); err != nil {
		t.Fatal(err)
	}
	p.id = p.do(ctx, t, "runp", "--runtime", handler, p.config)
	return p
}

// Values of CRI's NamespaceMode.
const (
	podPID       = 0
	containerPID = 1
)

func withPID(mode int) map[string]any {
	return map[string]any{"security_context": map[string]any{"namespace_options": map[string]any{"pid": mode}}}
}

// A container that has ended is replaced by a new one in the same pod, as when
// the kubelet restarts it; the pod's processes on the host stay the same.
func TestContainerRestarts(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runp(ctx, t, e, "restarts")
		other := p.start(ctx, t, forever, nil)
		for attempt := range 3 {
			id := p.start(ctx, t, []string{"sh", "-c", "echo attempt; exit 7"}, map[string]any{
				"metadata": map[string]any{"name": "again", "attempt": attempt},
			})
			if code := p.awaitState(ctx, t, id, "CONTAINER_EXITED"); code != 7 {
				t.Errorf("attempt %d: exit code %d, want 7", attempt, code)
			}
			p.do(ctx, t, "rm", id)
		}
		p.awaitState(ctx, t, other, "CONTAINER_RUNNING")
	})
}

// An image's content can be a volume.
func TestImageVolume(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		if r := e.Daemon.Release(); r.ConfigVersion < 3 {
			t.Skipf("image volumes are since containerd 2.1; this is %s", r.Version(ctx))
		}
		p := runp(ctx, t, e, "imagevolume")
		id := p.start(ctx, t, forever, map[string]any{"mounts": []any{
			map[string]any{"container_path": "/volume", "readonly": true, "image": map[string]any{"image": images.Busybox}},
		}})
		if got := p.exec(ctx, t, id, "sh", "-c", "/volume/bin/busybox echo seen; touch /volume/new 2>/dev/null || echo read-only"); got != "seen\nread-only" {
			t.Errorf("in the volume: %q", got)
		}
	})
}

// New limits apply to a running container.
func TestUpdateResources(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		if !bed.runtime.VM {
			t.Skip("the files that are read are cgroup v2's, which this host may not have; the guest has them")
		}
		p := runp(ctx, t, e, "update")
		id := p.start(ctx, t, forever, map[string]any{"linux": map[string]any{"resources": map[string]any{
			"memory_limit_in_bytes": 64 << 20, "cpu_quota": 50000, "cpu_period": 100000,
		}}})
		limits := []string{"sh", "-c", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max"}
		if got := p.exec(ctx, t, id, limits...); got != "67108864\n50000 100000" {
			t.Errorf("limits at first: %q", got)
		}
		p.do(ctx, t, "update", "--memory", "100663296", "--cpu-quota", "20000", "--cpu-period", "100000", id)
		if got := p.exec(ctx, t, id, limits...); got != "100663296\n20000 100000" {
			t.Errorf("limits after the update: %q", got)
		}
	})
}

// The files that the engine writes for the pod are in its containers; IPC and
// hostname are the pod's, PIDs only if requested.
func TestPodIsShared(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runShared(ctx, t, e, bed.runtime.Name, podPID)
		shared, own := map[string]any{"linux": withPID(podPID)}, map[string]any{"linux": withPID(containerPID)}
		first, second, apart := p.start(ctx, t, forever, shared), p.start(ctx, t, forever, shared), p.start(ctx, t, forever, own)
		p.checkFiles(ctx, t, first, apart)
		p.checkMemory(ctx, t, first, second)
		checkPIDs(ctx, t, p, map[string]int{first: 2, second: 2, apart: 1})
	})
}

// checkFiles checks the files that the engine, or the shim, writes for the pod.
func (p *pod) checkFiles(ctx context.Context, t *testing.T, containers ...string) {
	t.Helper()
	for _, id := range containers {
		if got := p.exec(ctx, t, id, "hostname"); got != "podname" {
			t.Errorf("hostname: %q", got)
		}
		if got := p.exec(ctx, t, id, "cat", "/etc/hostname"); got != "podname" {
			t.Errorf("/etc/hostname: %q", got)
		}
		if got := p.exec(ctx, t, id, "cat", "/etc/resolv.conf"); got != "search svc.example\nnameserver 10.9.8.7\noptions ndots:5" {
			t.Errorf("/etc/resolv.conf: %q", got)
		}
		if got := p.exec(ctx, t, id, "cat", "/etc/hosts"); !strings.Contains(got, "localhost") {
			t.Errorf("/etc/hosts: %q", got)
		}
	}
}

// checkMemory checks that two containers have the same shared memory.
func (p *pod) checkMemory(ctx context.Context, t *testing.T, first, second string) {
	t.Helper()
	p.exec(ctx, t, first, "sh", "-c", "echo word > /dev/shm/file")
	if got := p.exec(ctx, t, second, "cat", "/dev/shm/file"); got != "word" {
		t.Errorf("in the other's /dev/shm: %q", got)
	}
}

// checkPIDs counts the containers' first processes that each container sees.
func checkPIDs(ctx context.Context, t *testing.T, p *pod, want map[string]int) {
	t.Helper()
	for id, n := range want {
		all := p.exec(ctx, t, id, "sh", "-c", "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done")
		if got := strings.Count(all, "while :; do sleep"); got != n {
			t.Errorf("container %.6s sees %d containers' processes, want %d:\n%s", id, got, n, all)
		}
	}
}
