package manager

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// logFile is the shim's log in the bundle: a FIFO that containerd reads, or a
// file that iSulad made.
const logFile = "log"

// OpenLog makes the bundle's log the destination of this process's log, and of what Go
// writes when it crashes. It returns a context whose log entries name the sandbox.
func OpenLog(ctx context.Context, p *Params) (context.Context, error) {
	if err := log.SetFormat(log.TextFormat); err != nil {
		return ctx, fmt.Errorf("set log format: %w", err)
	}
	if p.Debug {
		if err := log.SetLevel("debug"); err != nil {
			return ctx, fmt.Errorf("set log level: %w", err)
		}
	}
	w, err := openLogFile(filepath.Join(p.Bundle, logFile))
	if err != nil {
		return ctx, fmt.Errorf("open log: %w", err)
	}
	if fd, ok := w.(lossyWriter); ok {
		if err := keepCrash(int(fd)); err != nil {
			return ctx, fmt.Errorf("open log: %w", err)
		}
	}
	entry := log.G(ctx).WithField("sandbox", p.ID)
	entry.Logger.SetFormatter(newForeignShare(entry.Logger.Formatter))
	entry.Logger.SetOutput(newLogBudget(w))
	return log.WithLogger(ctx, entry), nil
}

// openLogFile opens the log for reading too: writing to a FIFO then neither waits for
// a reader nor fails when it goes away, and of a file the end is read to be kept.
func openLogFile(path string) (io.Writer, error) {
	if _, err := os.Stat(path); err != nil {
		return io.Discard, nil //nolint:nilerr // the engine wants no log
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_APPEND|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return lossyWriter(fd), nil
}

// lossyWriter writes to a non-blocking descriptor and drops what does not fit: a
// log without a reader must not block the shim. Its caller writes one line at a time.
type lossyWriter int

func (w lossyWriter) Write(p []byte) (int, error) {
	if w.makeRoom(len(p)) {
		_, _ = unix.Write(int(w), p)
	}
	return len(p), nil
}
