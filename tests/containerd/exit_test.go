package containerd

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

var exitCodes = []uint32{0, 1, 42, 123, 255}

func TestExitCodeOfInit(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		for _, want := range exitCodes {
			c := add(ctx, t, pod, harness.ContainerConfig{Args: script(fmt.Sprintf("exit %d", want))})
			wantCode(ctx, t, &c.Process, want)
		}
	})
}

func TestExitCodeOfExec(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := idle(ctx, t, newPod(ctx, t, d))
		for _, want := range exitCodes {
			_, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script(fmt.Sprintf("exit %d", want))})
			if err != nil || code != want {
				t.Errorf("exit code %d, error %v; want %d", code, err, want)
			}
		}
	})
}

// A container outside any pod, as "ctr run" makes it.
func TestSingleContainer(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c, code, err := d.Run(ctx, harness.ContainerConfig{Name: "single", Args: script("echo out; echo err >&2; exit 42")})
		if err != nil {
			t.Fatal(err)
		}
		if code != 42 || c.Out.String() != "out\n" || c.Err.String() != "err\n" {
			t.Errorf("got code %d, stdout %q, stderr %q", code, c.Out, c.Err)
		}
	})
}

// A program that cannot be started fails the start, and the error names it.
func TestStartOfNoProgram(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c, err := pod.Add(ctx, harness.ContainerConfig{Name: "none", Args: []string{"no-such-program"}})
		if err == nil {
			err = c.Start(ctx)
		}
		wantError(t, err, "no-such-program")
		used := idle(ctx, t, pod)
		_, _, err = used.ExecRun(ctx, harness.ExecConfig{Args: []string{"no-such-program"}})
		wantError(t, err, "no-such-program")
	})
}

// PID 1 of a namespace is not killed by a signal that it has no handler for
// (pid_namespaces(7)), so the init passes the signal to a child.
const passOnTERM = `sleep 1000 & trap "kill -TERM $!" TERM; echo ready; wait $!; wait $!`

func TestSignalsToInit(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		for _, test := range []struct {
			signal syscall.Signal
			want   uint32
		}{{syscall.SIGTERM, 143}, {syscall.SIGKILL, 137}} {
			c := add(ctx, t, pod, harness.ContainerConfig{Args: script(passOnTERM)})
			if err := c.Out.Await(ctx, "ready"); err != nil {
				t.Fatal(err)
			}
			if err := c.Task.Kill(ctx, test.signal); err != nil {
				t.Errorf("send %v: %v", test.signal, err)
			}
			wantCode(ctx, t, &c.Process, test.want)
		}
	})
}

func TestSignalsToExec(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := idle(ctx, t, newPod(ctx, t, d))
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGHUP} {
			p, err := c.Exec(ctx, harness.ExecConfig{Args: script("echo ready; exec sleep 1000")})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if err := p.Out.Await(ctx, "ready"); err != nil {
				t.Fatal(err)
			}
			if err := p.Kill(ctx, signal); err != nil {
				t.Errorf("send %v: %v", signal, err)
			}
			wantCode(ctx, t, p, 128+uint32(signal))
			if err := p.Remove(ctx); err != nil {
				t.Error(err)
			}
		}
	})
}
