package hostile

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// attacks are shell commands, each of which must fail in a container with
// the default capabilities.
var attacks = map[string]string{
	"the kernel's memory":      "mknod /tmp/mem c 1 1 && dd if=/tmp/mem of=/dev/null bs=1 count=1",
	"the kernel's log":         "mknod /tmp/kmsg c 1 11 && echo x > /tmp/kmsg",
	"a disk":                   "mknod /tmp/disk b 254 0 && dd if=/tmp/disk of=/dev/null bs=1 count=1",
	"sysrq":                    "echo b > /proc/sysrq-trigger",
	"the core pattern":         "echo '|/bin/sh' > /proc/sys/kernel/core_pattern",
	"modprobe's path":          "echo /bin/sh > /proc/sys/kernel/modprobe",
	"a uevent helper":          "echo /bin/sh > /sys/kernel/uevent_helper",
	"kcore":                    "dd if=/proc/kcore of=/dev/null bs=1 count=1 2>/dev/null | grep -q .; test -s /proc/kcore",
	"a mount":                  "mkdir -p /tmp/m && mount -t tmpfs none /tmp/m",
	"the share":                "mkdir -p /tmp/m && mount -t virtiofs katabox /tmp/m",
	"a cgroup's release agent": "mkdir -p /tmp/m && mount -t cgroup -o memory none /tmp/m",
	"the agent's files":        "ls /proc/1/root/init",
	"other processes":          "test $(ls -d /proc/[0-9]* | wc -l) -gt 20",
	"the host's name":          "hostname other",
	"the clock":                "date -s 2000-01-01 > /dev/null 2>&1; date +%Y | grep -q 2000",
	"the guest's end":          "reboot -f",
}

// A container's attacks on its guest are refused; the pod and its other
// container keep running.
func TestAttacksFromInside(t *testing.T) {
	ctx, g := lying(t, "")
	p := newPod(ctx, t, g)
	c := addAttacker(ctx, t, p)
	for what, command := range attacks {
		proc, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"sh", "-c", command}})
		switch {
		case err != nil:
			t.Errorf("%s: %v", what, err)
		case code == 0:
			t.Errorf("%s: %q was not refused: %s", what, command, proc.Out.String())
		case strings.Contains(proc.Err.String(), "not found"):
			t.Errorf("%s: there is no such command: %s", what, proc.Err.String())
		}
	}
	p.answers(ctx)
	p.alive()
	p.remove(ctx)
}

// addAttacker adds a container that has the attacker's program.
func addAttacker(ctx context.Context, t *testing.T, p *pod, spec ...oci.SpecOpts) *harness.Container {
	t.Helper()
	spec = append(spec, oci.WithMounts([]specs.Mount{{
		Type: "bind", Source: bed.attacker, Destination: "/attacker", Options: []string{"rbind", "ro"},
	}}))
	c, err := p.Add(ctx, harness.ContainerConfig{Name: "attacker", Args: []string{"sleep", "100000"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// inside is the attacker's path in its container.
const inside = "/attacker/attacker"

// A privileged container is root in its guest only. It can end the guest, which
// ends its pod, in time and without a trace on the host.
func TestPrivilegedEndsItsGuestAlone(t *testing.T) {
	ctx, g := lying(t, "")
	works := neighbour(ctx, t)
	p := newPod(ctx, t, g)
	c := addAttacker(ctx, t, p, privileged()...)
	tryCalls(ctx, t, c, "try-root") // whatever of it succeeds
	p.answers(ctx)
	works()
	rebootContainer(ctx, t, p)
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	exec, err := c.Exec(bounded, harness.ExecConfig{Args: []string{"sh", "-c", "echo c > /proc/sysrq-trigger"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = exec.Start(bounded) // the guest may be gone before it is answered
	if code, err := p.idle.Wait(bounded); err != nil || code == 0 {
		t.Errorf("the guest's crash: the other container ended with %d, %v", code, err)
	}
	works()
	p.remove(ctx)
	_ = exec.Remove(ctx)
}
