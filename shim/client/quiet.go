package client

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Quiet is how long the output of a process that has ended must have been quiet to
// count as complete if its stream does not end: a child of the process may hold it. The
// shim answers Wait after the process's own output is in the FIFO.
const Quiet = 300 * time.Millisecond

// AwaitQuiet waits until done is closed, or until nothing was in transit for the time
// quiet, as inTransit reports. If a reader accepts nothing, AwaitQuiet waits as long as
// it takes. When ctx ends it returns the cause, unless nothing is in transit.
func AwaitQuiet(ctx context.Context, done <-chan struct{}, inTransit func() bool, quiet time.Duration) error {
	const look = 20 * time.Millisecond
	for silent := time.Duration(0); silent < quiet; {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			if inTransit() {
				return context.Cause(ctx)
			}
			return nil
		case <-time.After(look):
		}
		silent += look
		if inTransit() {
			silent = 0
		}
	}
	return nil
}

// Pending is the number of bytes in a pipe (FIONREAD, which package unix calls
// TIOCINQ); 0 for what is not a pipe.
func Pending(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
