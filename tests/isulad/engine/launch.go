package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Launched is the result of running the shim's program.
type Launched struct {
	ExitCode int
	// Stdout and Stderr are what one read of each returned after the program's
	// exit.
	Stdout, Stderr string
	// HeldOpen reports whether a process could still write to those pipes, of
	// which this engine has closed its ends.
	HeldOpen bool
}

// iSulad's buffers for what the program prints (PATH_MAX, BUFSIZ).
const (
	stdoutBytes = 4096
	stderrBytes = 8192
)

// launch runs the shim's "start" in the container's bundle, and waits for its
// exit without a timeout.
func (e *Engine) launch(id, bundle string) (Launched, error) {
	shim := filepath.Join(e.opts.ShimDir, shimName)
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Launched{}, fmt.Errorf("open null device: %w", err)
	}
	defer unix.Close(null)
	stdout, err := newPipe()
	if err != nil {
		return Launched{}, err
	}
	defer stdout.close()
	stderr, err := newPipe()
	if err != nil {
		return Launched{}, err
	}
	defer stderr.close()
	// Not os/exec: it would make the pipes blocking.
	pid, err := syscall.ForkExec(shim, []string{shimName, "--id", id, "--namespace", Namespace, "start"}, &syscall.ProcAttr{
		Dir: bundle, Env: e.environ(),
		Files: []uintptr{uintptr(null), uintptr(stdout.w), uintptr(stderr.w)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return Launched{}, fmt.Errorf("run %s: %w", shim, err)
	}
	code, err := waitFor(pid)
	if err != nil {
		return Launched{}, err
	}
	stdout.closeWrite()
	stderr.closeWrite()
	l := Launched{ExitCode: code, Stdout: stdout.readOnce(stdoutBytes), Stderr: stderr.readOnce(stderrBytes)}
	l.HeldOpen = stdout.hasWriter() || stderr.hasWriter()
	return l, nil
}

// environ returns the engine's environment with its additions, never with a
// TTRPC_ADDRESS.
func (e *Engine) environ() []string {
	return append([]string{
		"PATH=" + e.opts.ShimDir + ":/usr/sbin:/usr/bin:/sbin:/bin",
		"EXIT_FIFO_DIR=" + e.stateRoot(),
		"ISULAD_MONITORED_PATH=" + e.stateRoot(),
		"KATA_CONF_FILE=" + e.opts.ConfigFile,
	}, e.opts.Env...)
}

func waitFor(pid int) (int, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return 0, fmt.Errorf("wait for shim start: %w", err)
	}
	state, err := p.Wait()
	if err != nil {
		return 0, fmt.Errorf("wait for shim start: %w", err)
	}
	return state.ExitCode(), nil
}

// pipe has the descriptors of a non-blocking pipe; -1 is closed.
type pipe struct{ r, w int }

func newPipe() (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return &pipe{r: fds[0], w: fds[1]}, nil
}

func (p *pipe) closeWrite() {
	if p.w >= 0 {
		_ = unix.Close(p.w)
		p.w = -1
	}
}

func (p *pipe) close() {
	p.closeWrite()
	_ = unix.Close(p.r)
}

func (p *pipe) readOnce(size int) string {
	buf := make([]byte, size)
	n, err := unix.Read(p.r, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// hasWriter reports whether a process still has the pipe open for writing.
func (p *pipe) hasWriter() bool {
	for {
		n, err := unix.Read(p.r, make([]byte, stderrBytes))
		if errors.Is(err, unix.EAGAIN) {
			return true
		}
		if n <= 0 {
			return false
		}
	}
}
