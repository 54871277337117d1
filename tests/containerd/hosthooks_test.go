package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// hostHook returns a hook that records in dir that it ran, the state that it
// got, and the network namespaces of itself and of the state's pid.
func hostHook(dir, name, then string) []specs.Hook {
	script := fmt.Sprintf(`cd %s; cat > %s.json; echo %[2]s >> order
		pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/;t;s/.*/self/' %[2]s.json)
		readlink /proc/self/ns/net > %[2]s.own; readlink /proc/$pid/ns/net > %[2]s.net; %s`, dir, name, then)
	return []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}}
}

func withHostHooks(hooks *specs.Hooks) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		s.Hooks = hooks
		return nil
	}
}

func readWord(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

// The spec's hooks run on the host, in its namespaces, and get the container's
// state, with a pid that leads to the pod's network.
func TestHostHooks(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := t.TempDir()
		names := []string{"prestart", "createRuntime", "poststart", "poststop"}
		pod := newPod(ctx, t, d)
		c, err := pod.Add(ctx, harness.ContainerConfig{Name: "hooked", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{withHostHooks(&specs.Hooks{
			Prestart:      hostHook(dir, names[0], ""), // deprecated; engines use it
			CreateRuntime: hostHook(dir, names[1], ""),
			Poststart:     hostHook(dir, names[2], ""),
			Poststop:      hostHook(dir, names[3], ""),
		})}})
		if err != nil {
			t.Fatal(err)
		}
		// runc 1.1 runs the poststart hooks at the end of its create.
		if got := readWord(t, dir, "order"); got != "prestart createRuntime" && bed.runtime.VM {
			t.Errorf("after the create %s have run", got)
		}
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		net, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", c.Task.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		host, _ := os.Readlink("/proc/self/ns/net")
		for _, name := range names[:3] {
			if got := readWord(t, dir, name+".net"); got != net || got == host {
				t.Errorf("%s: the pid's network is %s, the pod's %s, the host's %s", name, got, net, host)
			}
		}
		if err := c.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		if got := readWord(t, dir, "order"); got != strings.Join(names, " ") {
			t.Errorf("in the end %s have run", got)
		}
		got := map[string]specs.ContainerState{}
		for _, name := range names {
			var state specs.State
			if err := json.Unmarshal([]byte(readWord(t, dir, name+".json")), &state); err != nil {
				t.Fatal(err)
			}
			if own := readWord(t, dir, name+".own"); own != host || state.ID != c.Box.ID() || state.Bundle == "" {
				t.Errorf("%s: network %s, state %+v", name, own, state)
			}
			got[name] = state.Status
		}
		want := map[string]specs.ContainerState{
			"prestart": specs.StateCreating, "createRuntime": specs.StateCreating, "poststart": specs.StateRunning, "poststop": specs.StateStopped,
		}
		if !bed.runtime.VM {
			delete(want, "poststart")
			delete(got, "poststart")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A hook that fails before the container runs fails the create or start, and
// leaves nothing.
func TestHostHookFails(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		dir := t.TempDir()
		_, err := pod.Add(ctx, harness.ContainerConfig{Name: "hooked", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{withHostHooks(&specs.Hooks{
			CreateRuntime: hostHook(dir, "createRuntime", "echo it cannot be >&2; exit 4"), Poststop: hostHook(dir, "poststop", ""),
		})}})
		wantError(t, err, "it cannot be", "exit status 4")
		if got := readWord(t, dir, "order"); got != "createRuntime poststop" {
			t.Errorf("%s have run", got)
		}
		works(ctx, t, idle(ctx, t, pod), "true")
	})
}

// Engines make the network of a container in its hooks: what they put into the
// pid's namespace is in the container when it starts.
func TestNetworkMadeByAHook(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		link := "kbhook" + d.NewID("link")[2:8]
		plug := fmt.Sprintf("ip link add %[1]s type veth peer name eth7 netns $pid && nsenter -t $pid -n sh -c 'ip addr add 10.99.0.2/24 dev eth7; ip link set eth7 up; ip link set lo up' && ip link set %[1]s up", link)
		c, err := d.Create(ctx, harness.ContainerConfig{Name: "hooked", Args: []string{"sh", "-c", "ip addr show eth7; sleep 100000"}, Spec: []oci.SpecOpts{withHostHooks(&specs.Hooks{
			Prestart: hostHook(t.TempDir(), "prestart", plug), // deprecated; Docker before 28 uses it
		})}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, "container", c.Remove) })
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Out.Await(ctx, "10.99.0.2/24"); err != nil {
			t.Error(err)
		}
	})
}
