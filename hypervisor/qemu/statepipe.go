package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// throughPipe calls move with QEMU's end of a pipe, and copies between the other end
// and state meanwhile; a state that is a pipe itself is given to move. Every QEMU
// takes a pipe. QEMU 11 refuses a regular file (migration/fd.c), and QEMU before 8.2
// has no other way to a file than that.
//
// It waits for the copying within ctx. After an error what is in state is incomplete.
func throughPipe(ctx context.Context, d direction, state *os.File, move func(end *os.File) error) error {
	mode, _, err := statFile(state)
	if err != nil {
		return fmt.Errorf("inspect file of the machine's state: %w", err)
	}
	if mode&unix.S_IFMT == unix.S_IFIFO {
		return move(state)
	}
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe for the machine's state: %w", err)
	}
	ours, machines, from, to := out, in, out, state
	if d == load {
		ours, machines, from, to = in, out, state, in
	}
	// QEMU's next read finds the end, and its next write fails.
	closeOurs := sync.OnceValue(ours.Close)
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, from)
		copied <- errors.Join(err, closeOurs())
	}()
	err = errors.Join(move(machines), machines.Close())
	if err != nil {
		_ = closeOurs() // QEMU may still have its end, and keep it
	}
	select {
	case copyErr := <-copied:
		return errors.Join(copyFault(copyErr, d, err != nil), err)
	case <-ctx.Done(): // the disk hangs, or QEMU keeps its end
		_ = closeOurs()
		return errors.Join(err, fmt.Errorf("copy the machine's state: %w", context.Cause(ctx)))
	}
}

// copyFault returns what went wrong with the copying, other than by QEMU's end of the
// migration. QEMU may not read what follows a state.
func copyFault(err error, d direction, failed bool) error {
	if err == nil || failed && errors.Is(err, os.ErrClosed) || d == load && errors.Is(err, unix.EPIPE) {
		return nil
	}
	return fmt.Errorf("copy the machine's state: %w", err)
}
