package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Child is a started program, an engine's daemon, that dies with this process.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has been waited for
	err  error         // its end; valid after done
}

// probePause is the time between two checks whether a program is ready.
const probePause = 50 * time.Millisecond

// StartChild starts cmd with its output appended to a file.
func StartChild(cmd *exec.Cmd, logPath string) (*Child, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make log: %w", err)
	}
	defer log.Close() // the child has a duplicate
	cmd.Stdout, cmd.Stderr = log, log
	// Its own group: a terminal's ^C must not reach it before Stop does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	c := &Child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// PDEATHSIG fires when the thread that forked ends (prctl(2)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

// Done returns a channel that is closed when the program has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// PID is the program's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ready waits until probe succeeds, the program ends, or ctx does.
func (c *Child) Ready(ctx context.Context, probe func(context.Context) error) error {
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("%s ended at once: %w", c.cmd.Path, errors.Join(c.err, err))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", c.cmd.Path, errors.Join(ctx.Err(), err))
		case <-time.After(probePause):
		}
	}
}

// Kill kills the program without a chance to clean up.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails only when it is gone
	<-c.done
}

// Stop asks the program to end, and kills it when ctx ends first.
func (c *Child) Stop(ctx context.Context) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		c.Kill()
		return fmt.Errorf("stop %s: %w: killed", c.cmd.Path, ctx.Err())
	}
}

// killTree ends processes by SIGKILL.
func killTree(procs []Proc) {
	for _, p := range procs {
		if process, err := os.FindProcess(p.PID); err == nil {
			_ = process.Kill()
		}
	}
}
