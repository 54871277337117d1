package hostile

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// refusals has the errors with which the attacker's calls must fail in a
// container with the default capabilities.
var refusals = map[string]unix.Errno{
	"bpf-program": unix.EPERM, "bpf-map": unix.EPERM,
	"kexec_load": unix.EPERM, "kexec_file_load": unix.EPERM,
	"init_module": unix.EPERM, "finit_module": unix.EPERM, "delete_module": unix.EPERM,
	"reboot": unix.EPERM, "power-off": unix.EPERM,
	"iopl": unix.EPERM, "ioperm": unix.EPERM,
	"open_by_handle_at": unix.EPERM, "perf_event_open": unix.EACCES,
	"swapon": unix.EPERM, "acct": unix.EPERM, "settimeofday": unix.EPERM, "syslog": unix.EPERM,
	// No process of another container or of the guest can be named.
	"ptrace": unix.ESRCH, "process_vm_readv": unix.ESRCH,
	"open-devices": unix.EPERM, "mount-disks": unix.EPERM,
	"mount-devtmpfs": unix.EPERM, "mount-debugfs": unix.EPERM, "mount-tracefs": unix.EPERM,
	"mount-securityfs": unix.EPERM, "mount-share": unix.EPERM,
}

// System calls by which a container would get at its guest's kernel are
// refused, also in a user namespace that it makes, where it has all
// capabilities.
func TestCallsFromInside(t *testing.T) {
	ctx, g := lying(t, "")
	p := newPod(ctx, t, g)
	c := addAttacker(ctx, t, p)
	for _, how := range []string{"try", "try-user"} {
		got := tryCalls(ctx, t, c, how)
		for name, want := range refusals {
			if errno, ok := got[name]; !ok || errno != want {
				t.Errorf("%s: %s: tried %v, %q, want %q", how, name, ok, errno, want)
			}
		}
		if len(got) != len(refusals) {
			t.Errorf("%s: the attacker tried %v", how, slices.Sorted(maps.Keys(got)))
		}
	}
	p.answers(ctx)
	p.alive()
	p.remove(ctx)
}

// tryCalls has the attacker try its calls, and returns each one's error; 0 for
// a call that succeeded.
func tryCalls(ctx context.Context, t *testing.T, c *harness.Container, how string) map[string]unix.Errno {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, 2*answerTimeout)
	defer cancel()
	proc, code, err := c.ExecRun(bounded, harness.ExecConfig{Args: []string{inside, how}})
	if err != nil || code != 0 {
		t.Fatalf("attacker %s: code %d, %v: %s", how, code, err, proc.Err.String())
	}
	if text := proc.Err.String(); text != "" {
		t.Logf("%s: %s", how, text)
	}
	got := map[string]unix.Errno{}
	for line := range strings.Lines(proc.Out.String()) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		errno, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("attacker %s printed %q", how, line)
		}
		got[name] = unix.Errno(errno)
	}
	t.Logf("%s: %v", how, got)
	return got
}

// rebootContainer has a privileged container call reboot(2), which ends that
// container and no other.
func rebootContainer(ctx context.Context, t *testing.T, p *pod) {
	t.Helper()
	c := addAttacker(ctx, t, p, privileged()...)
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	exec, err := c.Exec(bounded, harness.ExecConfig{Args: []string{inside, "try-one", "reboot"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = exec.Start(bounded) // the container may be gone before it is answered
	if code, err := c.Wait(bounded); err != nil || code == 0 {
		t.Errorf("the container that called reboot ended with %d, %v", code, err)
	}
	if err := exec.Remove(ctx); err != nil {
		t.Error(err)
	}
	p.answers(ctx)
}
