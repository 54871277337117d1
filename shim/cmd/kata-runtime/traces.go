package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/rights"
	"github.com/katabox/katabox/shim/tracing"
	"github.com/katabox/katabox/shim/tracing/export"
)

// exportTimeout ends the process whatever it is doing.
const exportTimeout = 30 * time.Second

// exportTracesCommand is what shims run; it is not for operators.
func exportTracesCommand() *cli.Command {
	return &cli.Command{
		Name: tracing.Command, Usage: "send the spans that a shim writes to standard input", Hidden: true,
		Action: func(ctx context.Context, _ *cli.Command) error {
			ctx, cancel := context.WithTimeout(ctx, exportTimeout)
			defer cancel()
			watchShim(cancel)
			if err := rights.Drop(); err != nil {
				return err
			}
			return export.Run(ctx, os.Stdin)
		},
	}
}

// watchShim calls gone when the shim has ended, if it has passed on a pipe.
func watchShim(gone func()) {
	var stat unix.Stat_t
	if err := unix.Fstat(tracing.GuardFD, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return
	}
	guard := os.NewFile(tracing.GuardFD, "guard")
	go func() {
		_, err := guard.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrClosed) {
			gone()
		}
	}()
}
