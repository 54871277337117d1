package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/containerd/console"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// outputWait bounds the wait for output when the command has ended and another
// process still holds its pipes.
const outputWait = 5 * time.Second

// sender sends what is written to it as frames.
type sender struct {
	s    *server
	kind wire.Kind
}

// Write implements io.Writer.
func (w sender) Write(p []byte) (int, error) {
	if err := w.s.send(w.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// start starts a command and returns; the exit is sent when it happens.
func (s *server) start(c wire.Command) {
	wait, err := s.launch(c)
	if err != nil {
		_ = s.sendJSON(wire.KindExit, wire.Exit{Code: 127, Problem: err.Error()}) // the next read fails too
		return
	}
	go func() { _ = s.sendJSON(wire.KindExit, exitOf(wait())) }()
}

func (s *server) launch(c wire.Command) (wait func() error, err error) {
	if len(c.Args) == 0 {
		return nil, errors.New("a command needs a name")
	}
	for _, e := range c.Env { // exec.Command looks in PATH
		if len(e) > 5 && e[:5] == "PATH=" {
			_ = os.Setenv("PATH", e[5:])
		}
	}
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = c.Env, c.Dir, outputWait
	if c.Terminal {
		return s.launchTerminal(cmd, c)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = sender{s, wire.KindOutput}, sender{s, wire.KindErrors}
	if s.input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return cmd.Wait, cmd.Start()
}

// launchTerminal runs the command on its own terminal.
func (s *server) launchTerminal(cmd *exec.Cmd, c wire.Command) (wait func() error, err error) {
	master, path, err := console.NewPty()
	if err != nil {
		return nil, fmt.Errorf("make terminal: %w", err)
	}
	if err := master.Resize(console.WinSize{Height: c.Rows, Width: c.Columns}); err != nil {
		return nil, errors.Join(fmt.Errorf("size terminal: %w", err), master.Close())
	}
	slave, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open terminal: %w", err), master.Close())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	_ = slave.Close() // the command has its own
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	s.input = master
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(sender{s, wire.KindOutput}, master) // ends with EIO when the last user has closed the terminal
	}()
	return func() error {
		err := cmd.Wait()
		select {
		case <-copied:
		case <-time.After(outputWait):
		}
		return errors.Join(err, master.Close())
	}, nil
}

func exitOf(err error) wire.Exit {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return wire.Exit{}
	case errors.Is(err, exec.ErrWaitDelay):
		return wire.Exit{Problem: "output was still open when the command had ended"}
	case !errors.As(err, &ended):
		return wire.Exit{Code: 127, Problem: err.Error()}
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return wire.Exit{Code: 128 + int(status.Signal())}
	}
	return wire.Exit{Code: ended.ExitCode()}
}
