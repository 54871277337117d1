package engines

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/console"

	"github.com/katabox/katabox/tests/harness"
)

// terminal runs the client with a terminal of 25 lines and 80 columns as its
// stdin, stdout and stderr, and types text into it as
// soon as it shows "ready".
func (s *stage) terminal(ctx context.Context, typed string, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pty, path, err := console.NewPty()
	if err != nil {
		s.t.Fatal(err)
	}
	defer pty.Close()
	if err := pty.Resize(console.WinSize{Height: 25, Width: 80}); err != nil {
		s.t.Fatal(err)
	}
	tty, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := s.engine.Command(ctx, s.runtime, args...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	start := time.Now()
	wait, err := harness.StartOwn(cmd)
	tty.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	screen, closed := &harness.Buffer{}, make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(screen, pty) // EIO when the last that had it open is gone
	}()
	if typed != "" && screen.Await(ctx, "ready") == nil {
		if _, err := io.WriteString(pty, typed); err != nil && !errors.Is(err, syscall.EIO) {
			s.t.Error(err)
		}
	}
	r := result{code: exitCode(wait())}
	select {
	case <-closed:
	case <-time.After(5 * time.Second): // something else holds the terminal
	}
	r.stdout = screen.String()
	s.t.Logf("%s %s (terminal): %.1f s, exit %d, %.300q", s.runtime.Name, strings.Join(args, " "),
		time.Since(start).Seconds(), r.code, r.stdout)
	return r
}
