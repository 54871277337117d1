package containerd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// withSpec changes a spec in place.
func withSpec(change func(*specs.Spec)) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		change(s)
		return nil
	}
}

// solo makes and starts a container without a pod; it is removed at the test's
// end.
func solo(ctx context.Context, t *testing.T, d *harness.Daemon, spec ...oci.SpecOpts) *harness.Container {
	t.Helper()
	c, err := d.Create(ctx, harness.ContainerConfig{Name: "solo", Args: []string{"sleep", "100000"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "container", c.Remove) })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// A spec's hostname, time offsets and personality apply to its container, alone
// or in a pod.
func TestNamesTimeAndPersonality(t *testing.T) {
	needVM(t) // runc of Debian 12 knows no time namespaces
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		const days = 1000
		odd := withSpec(func(s *specs.Spec) {
			s.Hostname, s.Domainname = "own", "example.org"
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
			s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: days * 86400}}
			s.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux32}
		})
		ownUTS := oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.UTSNamespace})
		pod := newPod(ctx, t, d)
		look := harness.ExecConfig{Args: script("hostname; cat /proc/sys/kernel/domainname; cut -d. -f1 /proc/uptime; cut -d' ' -f1 /proc/self/personality; uname -m")}
		for name, c := range map[string]*harness.Container{"single": solo(ctx, t, d, odd), "of a pod": with(ctx, t, pod, ownUTS, odd)} {
			got := strings.Fields(execOut(ctx, t, c, look))
			if len(got) != 5 {
				t.Fatalf("%s: %q", name, got)
			}
			if got[0] != "own" || got[1] != "example.org" || len(got[2]) < 8 || got[3] != "00000008" {
				t.Errorf("%s: names, seconds since boot, personality, machine: %q", name, got)
			}
		}
		if got := execOut(ctx, t, idle(ctx, t, pod), harness.ExecConfig{Args: []string{"hostname"}}); got != "pod\n" {
			t.Errorf("the pod's name is now %q", got)
		}
	})
}

// --pid=host and --ipc=host are refused by name, and so are the namespaces of a
// container in another machine; --uts=host copies the hostname.
func TestNamespacesOfTheHost(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		c := solo(ctx, t, d, withSpec(func(s *specs.Spec) { s.Hostname = "" }), oci.WithHostNamespace(specs.UTSNamespace))
		want, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		if got := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"hostname"}}); got != want+"\n" {
			t.Errorf("hostname %q, want the host's, %q", got, want)
		}
		if !strings.Contains(d.LogSince(mark, 1000), "UTS namespace") {
			t.Error("the log does not say that the host's UTS namespace is a copy")
		}
		for _, kind := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.IPCNamespace} {
			wantNoContainer(ctx, t, d, string(kind)+" namespace is to be the host's", oci.WithHostNamespace(kind))
		}
		for _, kind := range []string{"pid", "ipc", "uts"} {
			path := "/proc/4194303/ns/" + kind
			wantNoContainer(ctx, t, d, path, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.LinuxNamespaceType(kind), Path: path}))
		}
	})
}

// wantNoContainer fails the test unless a container is refused with an error
// that contains those words.
func wantNoContainer(ctx context.Context, t *testing.T, d *harness.Daemon, words string, spec ...oci.SpecOpts) {
	t.Helper()
	c, err := d.Create(ctx, harness.ContainerConfig{Name: "refused", Args: []string{"true"}, Spec: spec})
	if err == nil {
		t.Errorf("want %q: it was made", words)
		removed(t, "container", c.Remove)
	} else if !strings.Contains(err.Error(), words) {
		t.Errorf("want %q: %v", words, err)
	}
}

// With allow_host_namespaces a container that requests the host's PID and IPC
// namespaces gets its pod's, and this is logged.
func TestHostNamespacesAllowed(t *testing.T) {
	needVM(t)
	allow := func(o *harness.Options) { o.Kata.Extra = "[runtime]\nallow_host_namespaces = true\n" }
	newestOwn(t, allow, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		mark := d.LogSize()
		c := with(ctx, t, pod, oci.WithHostNamespace(specs.PIDNamespace), oci.WithHostNamespace(specs.IPCNamespace))
		got := execOut(ctx, t, c, harness.ExecConfig{Args: script("tr '\\0' ' ' < /proc/1/cmdline")})
		if !strings.HasPrefix(got, "/pause") {
			t.Errorf("process 1 is %q, want the pod's", got)
		}
		for _, lost := range []string{"PID namespace", "IPC namespace"} {
			if !strings.Contains(d.LogSince(mark, 1000), lost) {
				t.Errorf("the log does not say that the host's %s is not there", lost)
			}
		}
	})
}

// The PID namespace of another container of the pod, as kubectl debug --target
// and --pid=container:X request it, and the pod's.
func TestPIDNamespaceOfAContainer(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		target := add(ctx, t, pod, harness.ContainerConfig{Name: "target", Args: []string{"sleep", "31415"}})
		for want, pid := range map[string]uint32{"sleep 31415": target.Task.Pid(), "/pause": pod.Sandbox.Task.Pid()} {
			joins := with(ctx, t, pod, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.PIDNamespace, Path: fmt.Sprintf("/proc/%d/ns/pid", pid)}))
			got := execOut(ctx, t, joins, harness.ExecConfig{Args: script("tr '\\0' ' ' < /proc/1/cmdline")})
			if !strings.HasPrefix(got, want) {
				t.Errorf("process 1 is %q, want %s", got, want)
			}
		}
	})
}
