package inside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/typeurl/v2"

	"github.com/katabox/katabox/tests/harness"
)

// kataRuntime runs the operator's command with the daemon's configuration.
func kataRuntime(ctx context.Context, t *testing.T, d *harness.Daemon, verb string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(bed.layout.Bin(), "kata-runtime"), verb)
	cmd.Env = append(os.Environ(), "PATH="+bed.layout.Bin()+":/usr/sbin:/usr/bin:/sbin:/bin", "KATA_CONF_FILE="+d.KataConfigPath())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("kata-runtime %s: %v:\n%s", verb, err, out)
	}
	return string(out)
}

// kata-runtime says that pods can run here, and with what.
func TestCheckFindsKVM(t *testing.T) {
	ctx, d := begin(t)
	for verb, want := range map[string][]string{
		"check": {`ok +accelerator +KVM`, `ok +vsock +vhost-vsock`, `ok +vhost-net +/dev/vhost-net`, `ok +TUN +`, `ok +traffic control +`},
		"env":   {`accelerator = 'kvm'`, `vsock = 'vhost-vsock'`},
	} {
		out := kataRuntime(ctx, t, d, verb)
		for _, line := range want {
			if !regexp.MustCompile(line).MatchString(out) {
				t.Errorf("kata-runtime %s does not say %q:\n%s", verb, line, out)
			}
		}
	}
}

const clockSources = "/sys/devices/system/clocksource/clocksource0/available_clocksource"

// A first pod: the guest detects KVM, its stdout arrives, an exec returns its
// exit code, and containerd gets the pod's counters in the format of cgroup v2,
// which the host has.
func TestFirstPod(t *testing.T) {
	ctx, d := begin(t)
	pod, err := d.NewPod(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "pod", pod.Remove) })
	// A guest has KVM's clock on KVM only (arch/x86/kernel/kvmclock.c).
	c, err := pod.Add(ctx, harness.ContainerConfig{
		Name: "service", Args: []string{"sh", "-c", "cat " + clockSources + "; sleep 100000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Out.Await(ctx, "kvm-clock"); err != nil {
		t.Errorf("%v: the guest's clocks are %q, %q", err, c.Out, c.Err)
	}
	if p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"sh", "-c", "echo from an exec; exit 42"}}); err != nil {
		t.Errorf("exec: %v", err)
	} else if code != 42 || p.Out.String() != "from an exec\n" {
		t.Errorf("exec: exit code %d, output %q, want 42 and its words", code, p.Out)
	}
	wantNobody(t, d)
	for _, box := range []*harness.Container{pod.Sandbox, c} {
		m := metrics(ctx, t, box)
		if m.GetMemory().GetUsage() == 0 || m.GetCPU().GetUsageUsec() == 0 || m.GetPids().GetCurrent() == 0 {
			t.Errorf("metrics of %s: %v; want memory, CPU time and processes", box.Box.ID(), m)
		}
	}
}

// wantNobody fails the test unless QEMU uses KVM as an unprivileged user.
func wantNobody(t *testing.T, d *harness.Daemon) {
	t.Helper()
	p, err := d.One(harness.KindVMM)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nUid:\t1879", "\nCapEff:\t0000000000000000\n", "\nCapBnd:\t0000000000000000\n", "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("QEMU's status has no %q: %s", want, status)
		}
	}
}

// metrics returns a container's metrics as containerd passes them on.
func metrics(ctx context.Context, t *testing.T, c *harness.Container) *v2.Metrics {
	t.Helper()
	metric, err := c.Task.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	value, err := typeurl.UnmarshalAny(metric.Data)
	if err != nil {
		t.Fatal(err)
	}
	m, ok := value.(*v2.Metrics)
	if !ok {
		t.Fatalf("metrics are %T, want cgroup v2's", value)
	}
	return m
}
