package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is an engine's daemon; it dies with the tests.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the daemon was waited for
}

// StartProcess starts cmd with its output appended to a file.
func StartProcess(cmd *exec.Cmd, logPath string) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make log: %w", err)
	}
	defer log.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	// Its own group: a terminal's ^C must not reach it before Stop does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// PDEATHSIG fires when the thread that forked ends (prctl(2)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log says why it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Ready waits until probe succeeds, the daemon ends, or ctx does.
func (p *Process) Ready(ctx context.Context, probe func(context.Context) error) error {
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once: %w", p.cmd.Path, err)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", p.cmd.Path, ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Kill ends the daemon without a chance to tidy up.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only when it is gone
	<-p.done
}

// Stop asks the daemon to end, and kills it when ctx ends first.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("stop %s: %w: killed", p.cmd.Path, ctx.Err())
	}
}
