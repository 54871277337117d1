package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
)

// Stdio is where a process's streams go. The zero value gives it no stdin and
// collects stdout and stderr.
type Stdio struct {
	// TTY gives the process a terminal; its stderr is then part of stdout.
	TTY bool
	// Stdin is copied to the process; at its end the process's stdin is
	// closed, unless KeepStdin is set: then only the client's end is.
	Stdin     io.Reader
	KeepStdin bool
	// Stdout and Stderr take the output instead of the process's buffers.
	Stdout, Stderr io.Writer
}

// Process is one process of a container: its init, or one added by Exec.
type Process struct {
	client.Process
	// Out and Err hold the process's output, unless Stdio said otherwise.
	Out, Err *Buffer
	exit     <-chan client.ExitStatus
	exitedAt time.Time
	stdinEnd chan struct{} // closed when Stdin is at its end; nil without one
}

// creator returns the function that makes the FIFOs of p's streams.
func (p *Process) creator(d *Daemon, s Stdio) cio.Creator {
	p.Out, p.Err = &Buffer{}, &Buffer{}
	stdout, stderr, stdin := s.Stdout, s.Stderr, s.Stdin
	if stdout == nil {
		stdout = p.Out
	}
	if stderr == nil {
		stderr = p.Err
	}
	if stdin != nil && !s.KeepStdin {
		p.stdinEnd = make(chan struct{})
		stdin = &endReader{Reader: stdin, end: p.stdinEnd}
	}
	opts := []cio.Opt{cio.WithStreams(stdin, stdout, stderr), cio.WithFIFODir(d.fifoDir())}
	if s.TTY {
		opts = append(opts, cio.WithTerminal)
	}
	return cio.NewCreator(opts...)
}

// endReader closes end at its reader's end.
type endReader struct {
	io.Reader
	end  chan struct{}
	done bool
}

func (r *endReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !r.done {
		r.done = true
		close(r.end)
	}
	return n, err
}

// Start starts the process. Its exit is watched before that.
func (p *Process) Start(ctx context.Context) error {
	exit, err := p.Process.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("watch %s: %w", p.ID(), err)
	}
	p.exit = exit
	if err := p.Process.Start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", p.ID(), err)
	}
	if p.stdinEnd != nil {
		go p.closeStdin(context.WithoutCancel(ctx))
	}
	return nil
}

// closeStdin tells the runtime that stdin has ended. It returns when the
// reader, which the test owns, ends. The process may be gone by then.
func (p *Process) closeStdin(ctx context.Context) {
	<-p.stdinEnd
	_ = p.CloseIO(ctx, client.WithStdinCloser)
}

// Wait returns the exit code once the process has ended and all its output has
// arrived.
func (p *Process) Wait(ctx context.Context) (uint32, error) {
	if p.exit == nil {
		return 0, errors.New("wait for a process that was not started")
	}
	select {
	case status := <-p.exit:
		if err := status.Error(); err != nil {
			return 0, fmt.Errorf("wait for %s: %w", p.ID(), err)
		}
		p.exitedAt = status.ExitTime()
		return status.ExitCode(), p.drain(ctx)
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for %s: %w", p.ID(), ctx.Err())
	}
}

// ExitTime returns when the process exited, as the answer to Wait or Remove said
// last; zero if none of them succeeded.
func (p *Process) ExitTime() time.Time { return p.exitedAt }

// drain waits until the runtime has closed its ends of the output.
func (p *Process) drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.IO().Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the output of %s: %w", p.ID(), ctx.Err())
	}
}

// Run starts the process, waits for it and returns its exit code.
func (p *Process) Run(ctx context.Context) (uint32, error) {
	if err := p.Start(ctx); err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Remove kills the process if it still runs, and deletes it. It is no error if
// the process is gone already because its shim died.
func (p *Process) Remove(ctx context.Context) error {
	status, err := p.Delete(ctx, client.WithProcessKill)
	if err == nil {
		p.exitedAt = status.ExitTime()
		return nil
	}
	// The client keeps the FIFOs of what it could not delete.
	if io := p.IO(); io != nil {
		io.Cancel()
		_ = io.Close()
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", p.ID(), err)
}

// KillAndWait sends SIGKILL and waits for the end.
func (p *Process) KillAndWait(ctx context.Context) (uint32, error) {
	if err := p.Kill(ctx, syscall.SIGKILL); err != nil && !errdefs.IsNotFound(err) {
		return 0, fmt.Errorf("kill %s: %w", p.ID(), err)
	}
	return p.Wait(ctx)
}
