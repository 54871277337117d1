package containerd

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// With debug_console_enabled root of the host runs commands in the guest itself,
// where the image has them; without it the command is refused.
func TestDebugConsole(t *testing.T) {
	needVM(t)
	initrd := debugImage(t)
	enable := func(o *harness.Options) {
		o.Kata.Initrd, o.Kata.Extra = initrd, "[agent.kata]\ndebug_console_enabled = true\n"
	}
	newestOwn(t, enable, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		id := pod.Sandbox.Box.ID()
		debug := func(stdin string, args ...string) (string, int) { return debugIn(ctx, t, d, id, stdin, args...) }
		// It sees the agent, and not as a container would.
		if out, code := debug("", "sh", "-c", "cat /proc/1/comm; echo $$ >/dev/null; exit 7"); out != "init\n" || code != 7 {
			t.Errorf("a command: %q, %d", out, code)
		}
		if out, code := debug("echo a line; ls -d /run/kata-containers/shared/containers\nexit 3\n"); out != "a line\n/run/kata-containers/shared/containers\n" || code != 3 {
			t.Errorf("a shell: %q, %d", out, code)
		}
		if out, code := debug(strings.Repeat("0123456789abcde\n", 1<<16), "md5sum"); code != 0 || len(out) != 36 {
			t.Errorf("a MiB of input: %q, %d", out, code)
		}
		if out, code := debug("", "none"); code != 1 || !strings.Contains(out, `start "none"`) {
			t.Errorf("a program that is not there: %q, %d", out, code)
		}
		byName := kataRuntime(ctx, d, "exec", id, "sh", "-c", "cat /proc/1/comm; exit 7")
		if out, _ := byName.CombinedOutput(); string(out) != "init\n" || byName.ProcessState.ExitCode() != 7 {
			t.Errorf("by exec: %q, %d", out, byName.ProcessState.ExitCode())
		}
		cmd := kataRuntime(ctx, d, "debug", id)
		script := exec.CommandContext(ctx, "script", "-qec", strings.Join(cmd.Args, " "), "/dev/null")
		script.Stdin = strings.NewReader("tty; exit 5\n")
		if out, err := script.CombinedOutput(); !strings.Contains(string(out), "/dev/pts/") || script.ProcessState.ExitCode() != 5 {
			t.Errorf("on a terminal: %q, %v", out, err)
		}
		checkDebugEnds(ctx, t, d, id)
	})
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		out, err := kataRuntime(ctx, d, "debug", pod.Sandbox.Box.ID(), "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "set debug_console_enabled = true in [agent.kata]") {
			t.Errorf("without the setting: %s, %v", out, err)
		}
	})
}

// debugIn runs a command in a pod's guest and returns what it wrote and its exit
// code.
func debugIn(ctx context.Context, t *testing.T, d *harness.Daemon, id, stdin string, args ...string) (string, int) {
	t.Helper()
	cmd := kataRuntime(ctx, d, append([]string{"debug", id}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// checkDebugEnds checks that a process does not outlive its connection.
func checkDebugEnds(ctx context.Context, t *testing.T, d *harness.Daemon, id string) {
	t.Helper()
	ended, end := context.WithCancel(ctx)
	hung := kataRuntime(ended, d, "debug", id, "sh", "-c", "echo up; exec sleep 4242")
	pipe, err := hung.StdoutPipe()
	if err == nil {
		err = hung.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = pipe.Read(make([]byte, 3))
	end()
	_ = hung.Wait()
	if out, code := debugIn(ctx, t, d, id, "", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do ps | grep -q \"[s]leep 4242\" || exit 0; sleep 0.5; done; ps; exit 1"); code != 0 {
		t.Errorf("it runs on: %s", out)
	}
}
