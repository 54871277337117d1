package containerd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// awaitLog waits until the daemon's log, from mark on, has a line with all
// words: a guest's lines arrive with a delay.
func awaitLog(ctx context.Context, t *testing.T, d *harness.Daemon, mark int64, words ...string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if hasLine(d.LogSince(mark, 100000), words...) {
			return
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			t.Errorf("the log has no line with %q", words)
			return
		}
	}
}

func hasLine(log string, words ...string) bool {
	for line := range strings.Lines(log) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// withoutMkdir sets a seccomp profile that forbids making directories, with an
// otherwise unused error.
func withoutMkdir(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
	quota := uint(122) // EDQUOT
	spec.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchX86_64},
		Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno, ErrnoRet: &quota}},
	}
	return nil
}

const seccompAnnotation = "io.katacontainers.config.runtime.disable_guest_seccomp"

// profileApplies reports whether withoutMkdir is effective, in a container's
// init and in an exec.
func profileApplies(ctx context.Context, t *testing.T, d *harness.Daemon, annotations map[string]string) bool {
	t.Helper()
	c, err := d.Create(ctx, harness.ContainerConfig{
		Name: "profiled", Args: script("mkdir /made; echo done; exec sleep 100000"),
		Spec: []oci.SpecOpts{withoutMkdir, oci.WithAnnotations(annotations)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "container", c.Remove) })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Out.Await(ctx, "done"); err != nil {
		t.Fatal(err)
	}
	p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"mkdir", "/other"}})
	if err != nil {
		t.Fatal(err)
	}
	const refused = "Disk quota exceeded"
	applies := strings.Contains(c.Err.String(), refused)
	if strings.Contains(p.Err.String(), refused) != applies || (code == 0) == applies {
		t.Errorf("the init said %q, an exec ended with %d and said %q", c.Err, code, p.Err)
	}
	return applies
}

const unconfined = "the container's seccomp profile is not applied: runtime.disable_guest_seccomp is true"

// A container's seccomp profile applies if the configuration or the pod's
// annotation says so; otherwise this is logged.
func TestSeccompProfile(t *testing.T) {
	needVM(t)
	apply := func(o *harness.Options) { o.Kata.Extra = "[runtime]\ndisable_guest_seccomp = false\n" }
	newestOwn(t, apply, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		if !profileApplies(ctx, t, d, nil) {
			t.Error("the profile is not applied, though the configuration says so")
		}
		if strings.Contains(d.LogSince(mark, 1000), unconfined) {
			t.Error("the log says that it is not applied")
		}
		if profileApplies(ctx, t, d, map[string]string{seccompAnnotation: "true"}) {
			t.Error("the profile is applied, though the annotation says no")
		}
		awaitLog(ctx, t, d, mark, "level=info", unconfined)
	})
}

// By default the profile is ignored, as in Kata Containers.
func TestSeccompProfileByDefault(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		if profileApplies(ctx, t, d, nil) {
			t.Error("the profile is applied by default")
		}
		awaitLog(ctx, t, d, mark, "level=info", unconfined)
		if !profileApplies(ctx, t, d, map[string]string{seccompAnnotation: "false"}) {
			t.Error("the profile is not applied, though the annotation says so")
		}
	})
}

// With enable_debug the guest kernel's output is in the log, line by line;
// without it, it is not. A pod from a template has no boot of which to tell.
func TestConsoleInTheLog(t *testing.T) {
	needVM(t)
	for _, debug := range []bool{true, false} {
		t.Run(fmt.Sprintf("debug=%v", debug), func(t *testing.T) {
			configure := func(o *harness.Options) {
				o.Kata.Extra = fmt.Sprintf("enable_debug = %v\n[factory]\nenable_template = false\n", debug)
			}
			newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				mark := d.LogSize()
				pod := newPod(ctx, t, d)
				if !debug {
					if log := d.LogSince(mark, 100000); strings.Contains(log, "source=console") {
						t.Errorf("the log has lines of the console: %s", log)
					}
					return
				}
				awaitLog(ctx, t, d, mark, "source=console", "Linux version ", "sandbox="+pod.Sandbox.Box.ID())
				awaitLog(ctx, t, d, mark, "source=console", "Run /init as init process")
			})
		})
	}
}

func withSysctls(values map[string]string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
		spec.Linux.Sysctl = values
		return nil
	}
}

// Sysctls of the network are the guest's, those of an IPC namespace the pod's.
func TestSysctls(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		add(ctx, t, pod, harness.ContainerConfig{Name: "setting", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{withSysctls(map[string]string{
			"net.core.somaxconn": "77", "net/ipv4/ip_unprivileged_port_start": "7",
			"kernel.shmmni": "78", "kernel.shm_rmid_forced": "1", "kernel.msgmax": "79", "kernel.sem": "80 81 82 83", "fs.mqueue.msg_max": "9",
		})}})
		const show = "cd /proc/sys; cat net/core/somaxconn net/ipv4/ip_unprivileged_port_start kernel/shmmni " +
			"kernel/shm_rmid_forced kernel/msgmax kernel/sem fs/mqueue/msg_max"
		got := strings.Join(strings.Fields(execOut(ctx, t, idle(ctx, t, pod), harness.ExecConfig{Args: script(show)})), " ")
		if want := "77 7 78 1 79 80 81 82 83 9"; got != want {
			t.Errorf("another container of the pod sees %q, want %q", got, want)
		}
		other := idle(ctx, t, newPod(ctx, t, d))
		got = strings.TrimSpace(execOut(ctx, t, other, harness.ExecConfig{Args: script("cat /proc/sys/kernel/shmmni")}))
		if got == "78" {
			t.Error("another pod has the sysctl too")
		}
	})
}

// A sysctl that is not namespaced, or that the guest lacks, fails the container
// with an error that names it, and leaves nothing.
func TestSysctlsThatFail(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		for _, name := range []string{"vm.overcommit_memory", "kernel.threads-max", "fs.file-max", "net.nosuch", "kernel.hostname"} {
			_, err := pod.Add(ctx, harness.ContainerConfig{
				Name: "sysctl", Args: []string{"true"}, Spec: []oci.SpecOpts{withSysctls(map[string]string{name: "1"})},
			})
			wantError(t, err, name)
		}
		idle(ctx, t, pod) // the pod still works
	})
}

// withDevices replaces the device rules: only what runc always allows (making
// nodes, and /dev/null and similar) and what is requested is allowed.
func withDevices(allowed ...specs.LinuxDeviceCgroup) oci.SpecOpts {
	return withLimits(func(r *specs.LinuxResources) {
		r.Devices = append([]specs.LinuxDeviceCgroup{{Access: "rwm"}}, allowed...)
	})
}

// A container can make a device node but not open it, unless a rule allows it.
func TestDeviceRules(t *testing.T) {
	needVM(t)
	const open = "mknod /dev/it c 1 11 && echo hello > /dev/it"
	kmsg := []int64{1, 11}
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		for _, test := range []struct {
			name string
			rule []specs.LinuxDeviceCgroup
			says string
		}{
			{"denied", nil, "Operation not permitted"},
			{"reads", []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: &kmsg[0], Minor: &kmsg[1], Access: "r"}}, "Operation not permitted"},
			{"writes", []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: &kmsg[0], Minor: &kmsg[1], Access: "w"}}, ""},
		} {
			c := add(ctx, t, pod, harness.ContainerConfig{
				Name: test.name, Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{withDevices(test.rule...)},
			})
			if code, said := try(ctx, t, c, open); (code == 0) != (test.says == "") || !strings.Contains(said, test.says) {
				t.Errorf("%s: exit code %d, %q, want %q", test.name, code, said, test.says)
			}
			const block = "mknod /dev/block b 254 0 && cat /dev/block"
			if _, said := try(ctx, t, c, block); !strings.Contains(said, "Operation not permitted") {
				t.Errorf("%s: of a disk it says %q", test.name, said)
			}
		}
	})
}
