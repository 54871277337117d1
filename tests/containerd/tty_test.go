package containerd

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// showSize prints the terminal's size until it is killed.
const showSize = `while :; do stty size; sleep 0.05; done`

// terminal is a process with a terminal.
type terminal struct {
	*harness.Process
	resize func(ctx context.Context, width, height uint32) error
}

func TestTerminalIsResized(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		tty := harness.Stdio{TTY: true}
		c := add(ctx, t, pod, harness.ContainerConfig{Args: script(showSize), Stdio: tty})
		p, err := idle(ctx, t, pod).Exec(ctx, harness.ExecConfig{Args: script(showSize), Stdio: tty})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(ctx); err != nil {
			t.Fatal(err)
		}
		for _, term := range []terminal{{&c.Process, c.Task.Resize}, {p, p.Resize}} {
			for _, size := range []struct {
				width, height uint32
				want          string
			}{{101, 43, "43 101"}, {80, 25, "25 80"}} {
				if err := term.resize(ctx, size.width, size.height); err != nil {
					t.Fatalf("resize: %v", err)
				}
				if err := term.Out.Await(ctx, size.want+"\r\n"); err != nil {
					t.Error(err)
				}
			}
			if _, err := term.KillAndWait(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := p.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A shell on a terminal: input is echoed, stdout and stderr arrive in one
// stream, and the shell's exit code is the container's.
func TestShellOnATerminal(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		stdin, typed := io.Pipe()
		defer func() { _ = typed.Close() }()
		c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
			Args: []string{"sh"}, Stdio: harness.Stdio{TTY: true, Stdin: stdin},
		})
		if _, err := io.WriteString(typed, "echo o$((1+1))t; echo e$((2+2))r >&2; exit 33\n"); err != nil {
			t.Fatal(err)
		}
		wantCode(ctx, t, &c.Process, 33)
		for _, want := range []string{"o2t\r\n", "e4r\r\n", "echo o$((1+1))t"} {
			if !strings.Contains(c.Out.String(), want) {
				t.Errorf("the terminal lacks %q: %q", want, c.Out)
			}
		}
	})
}
