package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// exitFIFO is a container's exit_fifo, open for reading.
type exitFIFO struct{ fd int }

func (c *Container) exitPath() string { return filepath.Join(c.stateDir(), "exit_fifo") }

func (c *Container) openExit() (*exitFIFO, error) {
	if err := os.MkdirAll(c.stateDir(), 0o700); err != nil {
		return nil, fmt.Errorf("make state: %w", err)
	}
	fd, err := makeFIFO(c.exitPath(), unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	return &exitFIFO{fd: fd}, nil
}

func (x *exitFIFO) close() { _ = unix.Close(x.fd) }

var errNoExit = errors.New("no exit code came")

// read waits for an exit code: an int in the host's byte order. With wait 0
// only ctx limits it.
func (x *exitFIFO) read(ctx context.Context, wait time.Duration) (int32, error) {
	const tick = 20 // milliseconds between two checks of ctx
	buf := make([]byte, 4)
	for begin := time.Now(); wait == 0 || time.Since(begin) < wait; {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(x.fd), Events: unix.POLLIN}}, tick)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("wait for exit code: %w", err)
		}
		n, err := unix.Read(x.fd, buf)
		if n == len(buf) {
			return int32(binary.NativeEndian.Uint32(buf)), nil
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("read exit code: %w", err)
		}
	}
	return 0, errNoExit
}

// watch starts the monitor and the supervisor of a started container. Both
// end with the engine.
func (c *Container) watch(exit *exitFIFO) {
	if !c.engine.opts.NoMonitor {
		c.engine.work.Go(c.monitor)
	}
	c.engine.work.Go(func() {
		defer exit.close()
		c.supervise(exit)
	})
}

// monitor waits for the exit and writes it to the exit FIFO. A failed Wait
// counts as exit code 0.
func (c *Container) monitor() {
	// No context: only the connection's end makes this return.
	code, _ := c.taskWait(context.Background(), "")
	if c.engine.life.Err() != nil {
		return
	}
	fd, err := unix.Open(c.exitPath(), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, binary.NativeEndian.AppendUint32(nil, uint32(code)))
}

// How often, and at what interval, the supervisor kills an exited container
// that still answers.
const (
	goneTries = 10
	gonePause = 100 * time.Millisecond
)

// supervise waits for the exit code and takes the container down. A container
// that still answers signal 0 cannot be taken down: iSulad retries
// indefinitely, and this engine reports it.
func (c *Container) supervise(exit *exitFIFO) {
	ctx := c.engine.life
	code, err := exit.read(ctx, 0)
	if err != nil {
		return // the engine has died
	}
	if err := c.awaitGone(ctx); err != nil {
		c.mu.Lock()
		c.failure = err
		c.mu.Unlock()
	}
	// iSulad only warns of their errors; Calls has them.
	_ = c.taskDelete(ctx)
	_ = c.taskShutdown(ctx)
	if ctx.Err() == nil {
		c.finish(code)
	}
}

func (c *Container) awaitGone(ctx context.Context) error {
	for range goneTries {
		if err := c.Kill(ctx, 0); err != nil {
			return nil //nolint:nilerr // as it should be
		}
		_ = c.Kill(ctx, 9)
		time.Sleep(gonePause)
	}
	return fmt.Errorf("container %.12s exited and answers signal 0: it stays in garbage collection forever", c.ID)
}
