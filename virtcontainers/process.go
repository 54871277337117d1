package virtcontainers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// Process is a container's init or an exec. Its methods may be called from
// several goroutines.
type Process struct {
	container *Container
	execID    string
	terminal  bool
	io        IO
	// made is when the process was created, a lower bound for its exit time.
	made time.Time

	// announced is closed when the start has been announced to the engine: no
	// exit is reported before that.
	announced chan struct{}
	// known is closed when the process's exit is known, done when it is
	// recorded, reported once the observer has been told, if it is told at all.
	// Between known and done of the sandbox's own container the sandbox is torn
	// down.
	known, done, reported chan struct{}
	// removed is closed when Delete has ended, with removal as its error.
	removed chan struct{}
	removal error

	// heard is closed by the guest's first report of the exit.
	heard chan struct{}
	// doomed is closed, under mu, when the process gets its first SIGKILL: its end is
	// enforced from then on.
	doomed chan struct{}
	// unsent has an entry when a SIGKILL may not have reached the guest.
	unsent chan struct{}

	mu    sync.Mutex // guards what follows
	state State
	end   ending
	// left is set if the guest may still run the process, whose exit was recorded
	// without its report.
	left bool
	// unanswered is set if the start of an exec ended without the guest's answer: the
	// guest may be starting it, or run it.
	unanswered bool
	exit       Exit
	// written is how much output the process had written at its exit, as the guest
	// says; zero if it does not.
	written drained
	// giveUpReader ends awaitReader; nil before that.
	giveUpReader context.CancelFunc
}

// ErrDeleted is the result of concurrent deletes of a process, except for the
// first: the process is removed.
var ErrDeleted = fmt.Errorf("it is being deleted: %w", errdefs.ErrNotFound)

func newProcess(c *Container, execID string, terminal bool, io IO) *Process {
	return &Process{
		container: c, execID: execID, terminal: terminal, io: io, made: time.Now(),
		announced: make(chan struct{}), known: make(chan struct{}), done: make(chan struct{}), reported: make(chan struct{}),
		removed: make(chan struct{}), heard: make(chan struct{}), doomed: make(chan struct{}), unsent: make(chan struct{}, 1),
	}
}

// ProcessInfo is a snapshot of a process.
type ProcessInfo struct {
	State    State
	Terminal bool
	PID      int
	// Exit is set when State is Stopped or Deleted.
	Exit Exit
}

// Info returns the process's state.
func (p *Process) Info() ProcessInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ProcessInfo{State: p.state.seen(), Terminal: p.terminal, PID: p.container.PID(), Exit: p.exit}
}

// name returns the process's name for errors and logs.
func (p *Process) name() string {
	if p.execID == "" {
		return "container " + p.container.ID
	}
	return fmt.Sprintf("exec %s of container %s", p.execID, p.container.ID)
}

// Start runs the process and calls announce before its exit can be reported. An
// exec that cannot be started counts as ended; an init can be started again.
func (p *Process) Start(ctx context.Context, announce func(ProcessInfo)) error {
	if err := p.beginStart(); err != nil {
		return fmt.Errorf("start %s: %w", p.name(), err)
	}
	defer p.openGate()
	err := p.start(ctx)
	if p.endStart(ctx, err) {
		announce(p.Info())
	} else if err == nil {
		err = fmt.Errorf("it or its sandbox ended meanwhile: %w", errdefs.ErrUnavailable)
	}
	if err == nil {
		p.container.sandbox.stock.begin()
		p.holdStdin(ctx)
		return nil
	}
	if p.execID != "" {
		p.settle(Exit{Status: ExitLost, At: time.Now()}, false)
	}
	return fmt.Errorf("start %s: %w", p.name(), err)
}

// holdStdin lets the engine come back to the process's input.
func (p *Process) holdStdin(ctx context.Context) {
	if err := p.io.HoldStdin(); err != nil {
		log.G(ctx).WithError(err).Warnf("the input of %s ends with its engine", p.name())
	}
}

func (p *Process) beginStart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	state, err := p.state.next(starting)
	if err == nil && p.end == claimed {
		return fmt.Errorf("it has ended: %w", errdefs.ErrFailedPrecondition)
	}
	p.state = state
	return err
}

// endStart ends a start that was made with ctx, and reports whether the process was
// running: it may have lost its VM meanwhile, in which case its exit waits for the gate.
// An exec that was not started has ended, also if the guest has reported its exit: its
// engine may delete it at once, before that exit is recorded.
func (p *Process) endStart(ctx context.Context, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unanswered = p.execID != "" && guest.Unanswered(ctx, err)
	switch {
	case p.state != starting:
		return false
	case err == nil:
		p.state = Running
		return true
	case p.execID == "":
		p.state = Created
	default:
		p.stop(Exit{Status: ExitLost, At: time.Now()})
	}
	return false
}

func (p *Process) start(ctx context.Context) error {
	client, err := p.container.sandbox.agent()
	if err != nil {
		return err
	}
	if p.execID != "" {
		return p.startExec(ctx, client)
	}
	return p.startInit(ctx, client)
}

func (p *Process) startExec(ctx context.Context, client *guest.Client) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	_, err := client.Task().Start(ctx, &task.StartRequest{ID: p.container.ID, ExecID: p.execID})
	return guest.Err(err)
}

// startInit starts an init, or lets that of a restored container continue, and runs the
// hooks that follow. It goes on for a while if its caller gives it up: the guest would run
// the init all the same, and it would count as created.
func (p *Process) startInit(ctx context.Context, client *guest.Client) error {
	c := p.container
	defer c.sandbox.timed(c.ID, startSpan, startAction)()
	if err := c.awaitNetwork(ctx); err != nil {
		return err
	}
	c.sandbox.network.OpenResolvers(ctx, c.Bundle.ResolvConf())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := intime.Outlast(ctx, guest.CallTimeout)
	defer cancel()
	var err error
	if c.restored != nil {
		_, err = client.Task().Resume(ctx, &task.ResumeRequest{ID: c.ID})
	} else {
		_, err = client.Task().Start(ctx, &task.StartRequest{ID: c.ID})
	}
	if err != nil {
		return guest.Err(err)
	}
	return c.runPoststart(ctx)
}

// awaitNetwork gives the guest the network that the engine has made since the
// container was created: Docker makes it then since version 28 (its daemon, initializeCreatedTask).
// Containers that join a pod find its network made.
func (c *Container) awaitNetwork(ctx context.Context) error {
	if c.ID != c.sandbox.ID {
		return nil
	}
	if err := c.sandbox.network.Refresh(ctx, c.init.made); err != nil {
		return fmt.Errorf("give the guest the network of its namespace: %w", err)
	}
	return nil
}

// connect opens the process's stdio at both ends.
func (p *Process) connect(ctx context.Context) error {
	conns, err := p.container.sandbox.openConns(ctx, p.container.ID, p.execID, p.io.Streams())
	if err != nil {
		return err
	}
	if p.execID == "" {
		conns = p.container.noteFirstOutput(conns)
	}
	return p.io.Connect(conns)
}

// openGate lets the exit be reported.
func (p *Process) openGate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.announced:
	default:
		close(p.announced)
	}
}

// Wait blocks until the process has ended and its output was passed on, or
// until ctx ends.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
		return p.Info().Exit, nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("wait for %s: %w", p.name(), context.Cause(ctx))
	}
}

// Done is closed when the process has ended and its output was passed on.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill sends a signal. all, and SIGKILL to an init, reach every process of
// the container. It fails with errdefs.ErrNotFound for a process whose exit has
// been told, and with errdefs.ErrFailedPrecondition for an exec that was not
// started, as runc's shim does. It waits for a start that is in progress.
func (p *Process) Kill(ctx context.Context, signal uint32, all bool) error {
	if err := p.awaitStart(ctx); err != nil {
		return fmt.Errorf("kill %s: %w", p.name(), err)
	}
	if closed(p.known) { // do not wait for an exit that is not known yet
		p.awaitTold(ctx)
	}
	switch state := p.Info().State; {
	case state == Stopped || state == Deleted:
		return fmt.Errorf("kill %s: process already finished: %w", p.name(), errdefs.ErrNotFound)
	case state == Created && p.execID != "":
		return fmt.Errorf("kill %s: process not created: %w", p.name(), errdefs.ErrFailedPrecondition)
	case signal == 0:
		return nil // a probe; a dead guest is noticed elsewhere
	}
	p.signaled(signal)
	if p.expectEnd(signal) {
		// The end is enforced whatever the guest answers, and it ends the call.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.container.sandbox.killTimeout()+2*probeWait)
		defer cancel()
	}
	client, err := p.container.sandbox.agent()
	if err == nil {
		req := &task.KillRequest{ID: p.container.ID, ExecID: p.execID, Signal: signal, All: all}
		_, err = client.Task().Kill(ctx, req)
	}
	if err != nil && !p.endedWith(ctx, err) && !p.endedUntold(err) {
		p.noteUnsent(signal)
		return fmt.Errorf("kill %s: %w", p.name(), guest.Err(err))
	}
	return nil
}

// awaitStart waits, within ctx, for the end of an exec's start that is under way.
func (p *Process) awaitStart(ctx context.Context) error {
	p.mu.Lock()
	pending := p.execID != "" && p.state == starting
	p.mu.Unlock()
	if !pending {
		return nil
	}
	select {
	case <-p.announced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for its start: %w", context.Cause(ctx))
	}
}

// tellWait bounds how long a call waits for a known exit to be reported: the
// sandbox is torn down first. Its undos have their own bounds.
const tellWait = 2 * undoTimeout

// awaitTold waits for an exit that is about to be reported.
func (p *Process) awaitTold(ctx context.Context) {
	select {
	case <-p.done:
	case <-time.After(tellWait):
	case <-ctx.Done():
	}
}

// endedWith reports whether a call failed because the sandbox ended before the
// answer came, due to the signal or not. The end of the connection is seen
// before the exits are known.
func (p *Process) endedWith(ctx context.Context, err error) bool {
	if guest.Disconnected(err) || p.container.sandbox.gone() {
		p.awaitTold(ctx)
	}
	return closed(p.done) && !errdefs.IsNotFound(guest.Err(err))
}

// endedUntold reports whether a signal found no process in the guest because the process
// has ended, while its exit is held back (awaitReader): to the engine it was running, as
// a process of runc's would be, and the signal has reached it. Like other
// signals it does not wait for the exit, which a start that is under way may hold back.
func (p *Process) endedUntold(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end != alive && errdefs.IsNotFound(guest.Err(err))
}

// Resize sets the terminal's size, in characters. For an exec that was not
// started yet it is the size it starts with. Without a terminal it does
// nothing, as with runc's shim.
func (p *Process) Resize(ctx context.Context, width, height uint32) error {
	info := p.Info()
	if p.execID != "" && (info.State == Stopped || info.State == Deleted) {
		return fmt.Errorf("resize terminal of %s: it is %s: %w", p.name(), info.State, errdefs.ErrFailedPrecondition)
	}
	client, err := p.container.sandbox.agent()
	if err == nil && info.Terminal {
		req := &task.ResizePtyRequest{ID: p.container.ID, ExecID: p.execID, Width: width, Height: height}
		_, err = client.Task().ResizePty(ctx, req)
		err = guest.Err(err)
	}
	if err != nil {
		return fmt.Errorf("resize terminal of %s: %w", p.name(), err)
	}
	return nil
}

// CloseStdin ends the process's standard input after what was written so far.
func (p *Process) CloseStdin() { p.io.CloseStdin() }

// register announces an exec to the agent.
func (p *Process) register(ctx context.Context, spec *anypb.Any) error {
	client, err := p.container.sandbox.agent()
	if err != nil {
		return err
	}
	req := &task.ExecProcessRequest{ID: p.container.ID, ExecID: p.execID, Terminal: p.terminal, Spec: spec}
	req.Stdin, req.Stdout, req.Stderr = streamNames(p.io.Streams())
	_, err = client.Task().Exec(ctx, req)
	return guest.Err(err)
}

// IsExec reports whether the process is an exec rather than an init.
func (p *Process) IsExec() bool { return p.execID != "" }

// IO returns the IO with which the process was created.
func (p *Process) IO() IO { return p.io }
