package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/u-root/u-root/pkg/cpio"

	"github.com/katabox/katabox/tests/harness"
)

const hookDir = "/test/hooks"

// hook is a guest hook: a script that gets the container's state in $state, its
// root file system at $root, and its first argument in $1.
func hook(name, text string) cpio.Record {
	return cpio.StaticFile(hookDir[1:]+"/"+name, `#!/test/busybox sh
export PATH=/test
state=$(busybox cat)
bundle=$(echo "$state" | busybox sed 's/.*"bundle":"\([^"]*\)".*/\1/')
root=$(busybox sed 's/.*"root":{"path":"\([^"]*\)".*/\1/' $bundle/config.json)
`+text, 0o755)
}

// guestHooks are hooks of each kind. Those of prestart and poststart leave the
// state in the container; the last poststop hook, when the container is gone,
// in the log.
func guestHooks() []cpio.Record {
	return []cpio.Record{
		hook("prestart/10-state", `echo "$state" > $root/$1; echo first >> $root/order`),
		hook("prestart/20-refuse", `echo second >> $root/order
case "$state" in *-refused-*) echo "this one is not wanted" >&2; exit 7; esac`),
		cpio.StaticFile(hookDir[1:]+"/prestart/30-plain", "no program\n", 0o644),
		cpio.Symlink(hookDir[1:]+"/prestart/40-link", "10-state"),
		hook("poststart/10-state", `echo "$state" > $root/$1`),
		hook("poststart/20-fails", "exit 3"),
		hook("poststop/10-fails", "exit 4"),
		hook("poststop/20-state", `echo "$1: $state" >&2; exit 5`),
	}
}

// withHooks boots guests that have those hooks.
func withHooks(t *testing.T, more string) func(*harness.Options) {
	return func(o *harness.Options) {
		o.Kata.Initrd = initrdWith(t, guestHooks()...)
		o.Kata.Extra = fmt.Sprintf("guest_hook_path = %q\n%s", hookDir, more)
	}
}

// stateOf reads a state that a hook has left in a container.
func stateOf(ctx context.Context, t *testing.T, c *harness.Container, file string) specs.State {
	t.Helper()
	var state specs.State
	if err := json.Unmarshal([]byte(execOut(ctx, t, c, harness.ExecConfig{Args: []string{"cat", file}})), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// The guest's hooks run for every container at the right time, in order, with
// the container's state.
func TestGuestHooks(t *testing.T) {
	needVM(t)
	newestOwn(t, withHooks(t, ""), func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		c, err := d.Create(ctx, harness.ContainerConfig{
			Name: "hooked", Args: script("cat /prestart /order; exec sleep 100000"), Spec: []oci.SpecOpts{oci.WithAnnotations(map[string]string{"a": "b"})},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, "container", c.Remove) })
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Out.Await(ctx, "\nfirst\nsecond\n"); err != nil {
			t.Error(err)
		}
		id := c.Box.ID()
		want := specs.State{Version: specs.Version, ID: id, Status: specs.StateCreating, Bundle: "/run/kata-containers/bundles/" + id}
		for _, kind := range []struct {
			file   string
			status specs.ContainerState
		}{{"/prestart", specs.StateCreating}, {"/poststart", specs.StateRunning}} {
			got := stateOf(ctx, t, c, kind.file)
			if got.Pid <= 1 || got.Annotations["a"] != "b" {
				t.Errorf("%s: %+v", kind.file, got)
			}
			got.Pid, got.Annotations, want.Status = 0, nil, kind.status
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", kind.file, diff)
			}
		}
		awaitLog(ctx, t, d, mark, "level=warning", "source=agent", hookDir+"/prestart/30-plain is not a hook")
		awaitLog(ctx, t, d, mark, "level=warning", "source=agent", hookDir+"/prestart/40-link is not a hook")
		awaitLog(ctx, t, d, mark, "level=warning", "a hook failed", "poststart hook "+hookDir+"/poststart/20-fails: exit status 3")
		if log := d.LogSince(mark, 100000); strings.Contains(log, "cannot serialize") || hasLine(log, "level=info sandbox=") {
			t.Error("the log has libcontainer's complaint about hooks, or lines without a message")
		}
	})
}

// A container's end runs its poststop hooks; one whose prestart hook fails is
// not made, and the error says why.
func TestGuestHooksThatFail(t *testing.T) {
	needVM(t)
	newestOwn(t, withHooks(t, ""), func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		mark := d.LogSize()
		_, err := pod.Add(ctx, harness.ContainerConfig{Name: "refused", Args: []string{"true"}})
		wantError(t, err, "prestart hook "+hookDir+"/prestart/20-refuse: exit status 7: this one is not wanted")
		// A container that was not made has no poststop hooks.
		_, err = pod.Add(ctx, harness.ContainerConfig{
			Name: "invalid", Args: []string{"true"}, Spec: []oci.SpecOpts{withSysctls(map[string]string{"kernel.threads-max": "1"})},
		})
		wantError(t, err, "kernel.threads-max")
		c := add(ctx, t, pod, harness.ContainerConfig{Name: "short", Args: []string{"true"}})
		wantCode(ctx, t, &c.Process, 0)
		removed(t, "container", c.Remove)
		awaitLog(ctx, t, d, mark, "poststop hook "+hookDir+"/poststop/10-fails: exit status 4")
		awaitLog(ctx, t, d, mark, "poststop: {", `\"status\":\"stopped\"`, c.Box.ID())
		log := d.LogSince(mark, 100000)
		if !hasLine(log, "poststop: {", "-refused-") || hasLine(log, "poststop: {", "-invalid-") {
			t.Error("the container that a hook has refused has no end, or one that never was has")
		}
	})
}

// A pod may name the directory if the operator allows it; a directory that the
// guest lacks fails the pod.
func TestGuestHooksByAnnotation(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		const name = "io.katacontainers.config.hypervisor.guest_hook_path"
		spec := []oci.SpecOpts{oci.WithAnnotations(map[string]string{name: "/no/hooks"})}
		err := create(ctx, d, harness.ContainerConfig{Name: "wanting", Args: []string{"true"}, Spec: spec})
		wantError(t, err, name, "is not enabled")
	})
	enable := func(o *harness.Options) { o.Kata.Extra = "enable_annotations = [\"guest_hook_path\"]\n" }
	newestOwn(t, enable, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		spec := []oci.SpecOpts{oci.WithAnnotations(map[string]string{"io.katacontainers.config.hypervisor.guest_hook_path": "/no/hooks"})}
		err := create(ctx, d, harness.ContainerConfig{Name: "wanting", Args: []string{"true"}, Spec: spec})
		wantError(t, err, "find hooks: the guest has no directory /no/hooks")
	})
}
