package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// child is a started program that dies with this process.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program was waited for
	err  error         // its end; valid after done
}

// startChild starts cmd. PDEATHSIG fires when the thread that forked ends
// (prctl(2)), so the goroutine that forks keeps its thread until the program
// is gone.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	// Its own group: a terminal's ^C must not reach it before Stop does.
	cmd.SysProcAttr.Setpgid = true
	started := make(chan error, 1)
	go func() {
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

// stop asks the program to end, and makes it end when ctx does.
func (c *child) stop(ctx context.Context) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	_ = c.cmd.Process.Kill()
	<-c.done
	return fmt.Errorf("stop %s: %w: killed", c.cmd.Path, ctx.Err())
}

// killTree ends processes by SIGKILL.
func killTree(procs []Proc) {
	for _, p := range procs {
		if process, err := os.FindProcess(p.PID); err == nil {
			_ = process.Kill()
		}
	}
}
