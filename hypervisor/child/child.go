package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// stderrTailBytes is how much of the end of a child's stderr is kept.
const stderrTailBytes = 16 << 10

// Options describe the child. The caller owns the files in it: the child gets
// duplicates, and the caller may close its own once Start has returned. They
// are set to blocking mode, as by os/exec.
type Options struct {
	// Path is the executable; it is not looked up in $PATH.
	Path string
	// Args follow argv[0], which is Path.
	Args []string
	// Env is the whole environment; nil is an empty one.
	Env []string
	// ExtraFiles[i] becomes file descriptor FirstExtraFD+i of the child.
	ExtraFiles []*os.File
	// Stdout receives the child's standard output; nil discards it. An *os.File
	// is passed to the child directly. Anything else is written to by one
	// goroutine until Done, and must not block.
	Stdout io.Writer
	// StdoutLine, when not nil, is called for each line of stdout, as
	// StderrLine is for stderr's. Stdout must then not be an *os.File.
	StdoutLine func(line string)
	// StderrLine, when not nil, is called for each line of stderr, in order,
	// by one goroutine, with control characters replaced. It must not block.
	StderrLine func(line string)
	// Cloneflags are namespaces to make for the child
	// (unix.CLONE_NEWNET, NEWIPC, NEWUTS, NEWPID). With NEWPID Start returns before
	// Path is executed; if it cannot be, the child says why on stderr and ends.
	Cloneflags uintptr
	// NetworkNamespace is the path of a network namespace for the child to
	// run in; it must not come with CLONE_NEWNET. Empty is the caller's.
	NetworkNamespace string
	// Room, when not nil, is the mount namespace in which Path is started, as
	// process 1 of a PID namespace: CLONE_NEWPID must be in Cloneflags.
	Room *Room
	// Jail, when not nil, confines Path: it sets what of the host Path can see
	// and as which user it runs; not with Room. Path must have no symbolic
	// links and be in the jail. Start then returns before Path is executed; if
	// it cannot be, the child says why on stderr and ends.
	Jail *Jail
}

// FirstExtraFD is the child's number of ExtraFiles[0].
const FirstExtraFD = 3

// Process is a started child. Its methods may be called from several
// goroutines.
type Process struct {
	cmd    *exec.Cmd
	stderr *Tail
	done   chan struct{}
	err    error // written before done is closed
	holds  holds
}

// Start starts the child. It returns once the program runs (execve has
// succeeded), or the error.
func Start(opts Options) (*Process, error) {
	cmd, err := command(opts)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", opts.Path, err)
	}
	p := &Process{cmd: cmd, stderr: NewTail(stderrTailBytes), done: make(chan struct{})}
	pumps, err := p.connect(opts)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", opts.Path, err)
	}
	if opts.Room != nil {
		null, err := p.openNull()
		if err != nil {
			pumps.abandon()
			return nil, fmt.Errorf("start %s: %w", opts.Path, err)
		}
		defer null.Close()
	}
	started := make(chan error, 1)
	ownthread.Go(func() { p.run(opts, pumps, started) })
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", opts.Path, err)
	}
	return p, nil
}

func command(opts Options) (*exec.Cmd, error) {
	env := opts.Env
	if env == nil {
		env = []string{}
	}
	path := opts.Path
	switch {
	case opts.Room != nil:
		path = exeName
		env = append(slices.Clip(env), stageEnv+"="+roomStage)
	case opts.Jail != nil:
		err := opts.Jail.check()
		if err == nil {
			env, err = opts.Jail.env(env)
		}
		if err != nil {
			return nil, err
		}
		path = "/proc/self/exe"
	case opts.Cloneflags&unix.CLONE_NEWPID != 0:
		// Without PDEATHSIG, which the fork sets last, process 1 would outlive a
		// caller that was killed meanwhile: for it getppid(2) is always 0.
		env = append(slices.Clip(env), stageEnv+"="+plainStage)
		path = "/proc/self/exe"
	}
	return &exec.Cmd{
		Path:       path,
		Args:       append([]string{opts.Path}, opts.Args...),
		Env:        env,
		ExtraFiles: opts.ExtraFiles,
		SysProcAttr: &syscall.SysProcAttr{
			// Its own session: a terminal's ^C goes to the caller, which then
			// decides.
			Setsid:     true,
			Pdeathsig:  unix.SIGKILL,
			Cloneflags: opts.Cloneflags,
		},
	}, nil
}

// connect sets up stdout and stderr. The pumps that it returns copy them.
func (p *Process) connect(opts Options) (pumps, error) {
	var ps pumps
	sinks := []io.Writer{p.stderr}
	if opts.StderrLine != nil {
		sinks = append(sinks, &lineWriter{emit: opts.StderrLine})
	}
	w, err := ps.add(sinks...)
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = w
	if f, ok := opts.Stdout.(*os.File); ok {
		p.cmd.Stdout = f
		return ps, nil
	}
	sinks = nil
	if opts.Stdout != nil {
		sinks = append(sinks, opts.Stdout)
	}
	if opts.StdoutLine != nil {
		sinks = append(sinks, &lineWriter{emit: opts.StdoutLine})
	}
	if len(sinks) == 0 {
		return ps, nil
	}
	if w, err = ps.add(sinks...); err != nil {
		ps.abandon()
		return nil, err
	}
	p.cmd.Stdout = w
	return ps, nil
}

// run owns the child from fork to reap. PDEATHSIG fires when the thread that
// forked ends, not when its process does (prctl(2), PR_SET_PDEATHSIG), so one
// goroutine forks and waits, locked to its thread. The child inherits the
// thread's network namespace.
func (p *Process) run(opts Options, ps pumps, started chan<- error) {
	err := opts.enter()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		ps.abandon()
		started <- err
		return
	}
	ps.start()
	started <- nil
	p.awaitEnd()
	p.err = p.cmd.Wait()
	ps.finish()
	close(p.done)
}

// enter moves the calling thread into the namespaces for the child.
func (o Options) enter() error {
	if o.NetworkNamespace != "" {
		if err := enterNetwork(o.NetworkNamespace); err != nil {
			return err
		}
	}
	if o.Room != nil {
		return o.Room.enter()
	}
	return nil
}

// openNull opens /dev/null here, for the child's stdin, and its stdout if that
// has no reader: in a room the device may be missing.
func (p *Process) openNull() (*os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdin = null
	if p.cmd.Stdout == nil {
		p.cmd.Stdout = null
	}
	return null, nil
}

// Pid is the child's process id. After Done it may be another process's.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended, was reaped and its output was
// read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the child ended: nil while it runs and after exit status 0,
// an *exec.ExitError otherwise.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// ExitState returns how the child ended; nil while it runs.
func (p *Process) ExitState() *os.ProcessState {
	select {
	case <-p.done:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Stderr returns the end of the child's stderr, even after Done.
func (p *Process) Stderr() *Tail { return p.stderr }

// Signal sends a signal. A child that has ended is not an error.
func (p *Process) Signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.Pid(), err)
	}
	return nil
}

// Kill sends SIGKILL, even when ctx has already ended, and waits for Done
// within ctx. A child that has ended is not an error.
func (p *Process) Kill(ctx context.Context) error {
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for killed process %d: %w", p.Pid(), context.Cause(ctx))
	}
}
