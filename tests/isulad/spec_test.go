package isulad

import (
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/isulad/engine"
)

// "isula run --network host" passes a path to one of the host's namespaces. A
// container outside any pod gets loopback alone, and the log says so.
func TestHostNetwork(t *testing.T) {
	ctx := testContext(t)
	cfg := single("sleep", "1000")
	// The namespace of process 1, which root of a container may not inspect, is
	// refused the same way (virtcontainers/netns).
	cfg.Namespaces = map[specs.LinuxNamespaceType]string{specs.NetworkNamespace: procPath(os.Getpid(), "ns", "net")}
	c := start(ctx, t, cfg, engine.Detached)
	got := execOut(ctx, t, c, "cat", "/proc/net/dev")
	if !strings.Contains(got, "lo:") || strings.Count(got, ":") != 1 {
		t.Errorf("links of the container:\n%s", got)
	}
	log, err := os.ReadFile(c.LogPath())
	if err != nil || !strings.Contains(string(log), "asks for the host's network") {
		t.Errorf("the log has no warning: %v\n%s", err, log)
	}
}

// /dev/shm belongs to the pod and has the pod's size, whatever the bind says:
// the pod's other containers see a file in it, and the host does not.
func TestDevShm(t *testing.T) {
	ctx := testContext(t)
	pod := sharedPod(ctx, t)
	first := start(ctx, t, app(pod, "sleep", "1000"), engine.Detached)
	second := start(ctx, t, app(pod, "sleep", "1000"), engine.Detached)
	execOut(ctx, t, first, "sh", "-c", "echo shared >/dev/shm/seen")
	if got := execOut(ctx, t, second, "sh", "-c", "cat /dev/shm/seen; rm /dev/shm/seen; stat -f -c %T /dev/shm"); got != "shared\ntmpfs\n" {
		t.Errorf("in the other container: %q", got)
	}
}
