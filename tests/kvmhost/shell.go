package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containerd/console"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// shell runs a command on this program's standard input and output, in the
// machine, with a terminal if this program has one.
func (m *machine) shell(ctx context.Context, args []string) (code int, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return 1, fmt.Errorf("find working directory: %w", err)
	}
	c := wire.Command{Args: args, Env: environ(expectEnv...), Dir: dir}
	terminal, err := console.ConsoleFromFile(os.Stdin)
	if err == nil {
		size, err := terminal.Size()
		if err != nil {
			return 1, fmt.Errorf("read terminal's size: %w", err)
		}
		c.Terminal, c.Rows, c.Columns = true, size.Height, size.Width
		if err := terminal.SetRaw(); err != nil {
			return 1, fmt.Errorf("set terminal raw: %w", err)
		}
		defer func() { _ = terminal.Reset() }()
	}
	// It ends with this program: a read of standard input cannot be
	// interrupted.
	go m.feed(os.Stdin)
	return m.run(ctx, c, os.Stdout, os.Stderr)
}

// feed sends what it reads as the command's input.
func (m *machine) feed(in io.Reader) {
	buf := make([]byte, 4<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 && wire.Write(m.port, wire.KindInput, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = wire.Write(m.port, wire.KindInputEnd, nil) // the machine may be gone
			return
		}
	}
}
