package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// terminal runs the client with a terminal of 25 lines and 80 columns as its
// stdin, stdout and stderr, and types text into it, key by key, once it shows
// "ready".
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
	if err != nil {
		tty.Close()
		s.t.Fatal(err)
	}
	screen, closed := &harness.Buffer{}, make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(screen, pty) // EIO when the last process that had it open is gone
	}()
	ended := make(chan error, 1)
	go func() {
		ended <- wait()
		cancel() // keys are not read any more
	}()
	if typed != "" && screen.Await(ctx, "ready") == nil {
		if err := typeKeys(ctx, pty, tty, typed); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	}
	tty.Close()
	r := result{code: exitCode(<-ended)}
	select {
	case <-closed:
	case <-time.After(5 * time.Second): // something else holds the terminal
	}
	r.stdout = screen.String()
	s.t.Logf("%s %s (terminal): %.1f s, exit %d, %.300q", s.runtime.Name, strings.Join(args, " "),
		time.Since(start).Seconds(), r.code, r.stdout)
	return r
}

// typeKeys types each key when the previous one was read, as a person does.
// Podman recognizes the detach keys only if each arrives by a separate read.
// Before the client has made the terminal raw, the kernel handles ^Q itself
// (IXON), and input can be lost when the mode changes.
func typeKeys(ctx context.Context, pty io.Writer, tty *os.File, keys string) error {
	fd := int(tty.Fd())
	raw := func() (bool, error) {
		state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		return err == nil && state.Lflag&unix.ICANON == 0, err
	}
	// poll(2) first waits for what is under way from the other end
	// (drivers/tty/n_tty.c, n_tty_poll: tty_buffer_flush_work).
	taken := func() (bool, error) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return err == nil && fds[0].Revents&unix.POLLIN == 0, err
	}
	if err := poll(ctx, raw); err != nil {
		return fmt.Errorf("wait for a raw terminal: %w", err)
	}
	for _, key := range []byte(keys) {
		if _, err := pty.Write([]byte{key}); err != nil {
			return fmt.Errorf("type key %#x: %w", key, err)
		}
		if err := poll(ctx, taken); err != nil {
			return fmt.Errorf("wait until key %#x was read: %w", key, err)
		}
	}
	return nil
}

// poll calls ask until it returns true.
func poll(ctx context.Context, ask func() (bool, error)) error {
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
