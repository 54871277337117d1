package qmp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// acquire takes the right to write.
func (m *Monitor) acquire(ctx context.Context) error {
	select {
	case <-m.writer:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.done:
		return m.Err()
	}
}

func (m *Monitor) release() { m.writer <- struct{}{} }

// write sends a whole line within ctx. The caller has called acquire. A partly
// sent line cannot be taken back, so the Monitor is then closed.
func (m *Monitor) write(ctx context.Context, line []byte, f *os.File) error {
	if err := m.conn.SetWriteDeadline(time.Time{}); err != nil {
		return &closedError{cause: err}
	}
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		_ = m.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := m.send(line, f)
	if !stop() {
		<-aborted // the abort must not affect the next writer
	}
	switch {
	case err == nil:
		return nil
	case n > 0:
		m.fail(fmt.Errorf("write was cut short: %w", err))
		_ = m.conn.Close()
		return m.Err()
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET),
		errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		// QEMU has ended. The connection stays open for the reader, which may
		// still find events that say why.
		return &closedError{cause: err}
	}
	return err
}

// send writes the line, with f's descriptor beside its first byte.
func (m *Monitor) send(line []byte, f *os.File) (int, error) {
	if f == nil {
		return m.conn.Write(line)
	}
	n, err := m.sendRights(line, f)
	if err != nil || n == len(line) {
		return n, err
	}
	k, err := m.conn.Write(line[n:])
	return n + k, err
}

func (m *Monitor) sendRights(line []byte, f *os.File) (n int, err error) {
	conn, ok := m.conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("pass file: not a unix connection")
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("pass file: %w", err)
	}
	// Not f.Fd(): that would make the open file blocking, for its owner and
	// for QEMU alike.
	ctlErr := raw.Control(func(fd uintptr) {
		n, _, err = conn.WriteMsgUnix(line, unix.UnixRights(int(fd)), nil)
	})
	if ctlErr != nil {
		return n, fmt.Errorf("pass file: %w", ctlErr)
	}
	return n, err
}
