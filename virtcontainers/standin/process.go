package standin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// Options describe a stand-in. The caller owns the files and may close them
// once Start has returned.
type Options struct {
	// Args are the command line that the host sees, bounded by shownArgs. The
	// first one's last path component is the process's name.
	Args []string
	Env  []string
	// Hostname is that of its UTS namespace.
	Hostname string
	// Network is the network namespace to be in; nil is a new, empty one.
	Network *os.File
	View    View

	null *os.File
}

// Process is a running stand-in. Its methods may be called from several
// goroutines.
type Process struct {
	proc    *os.Process
	pid     int
	signals chan unix.Signal
	done    chan struct{}
	// cgroup is nil if there is none, or it was removed.
	cgroup atomic.Pointer[hostcgroup.Container]
}

// startWait bounds how long a stand-in may take to set itself up.
const startWait = 10 * time.Second

// Start starts a stand-in and returns when it has set itself up. It is in the
// cgroups of this process until Join.
func (h *Host) Start(opts Options) (*Process, error) {
	p, err := h.start(opts)
	if err != nil {
		return nil, fmt.Errorf("start stand-in process: %w", err)
	}
	return p, nil
}

func (h *Host) start(opts Options) (_ *Process, err error) {
	if opts.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	opts.Args = shownArgs(opts.Args)
	reports, report, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, opts.null.Close())
	}
	p := &Process{signals: make(chan unix.Signal, signalQueue), done: make(chan struct{})}
	if p.proc, err = h.fork(opts, report); err != nil {
		return nil, errors.Join(err, reports.Close())
	}
	p.pid = p.proc.Pid
	if err := awaitPlace(reports); err != nil {
		return nil, errors.Join(err, p.proc.Kill(), p.end(reports))
	}
	go p.follow(reports)
	return p, nil
}

// fork starts the program, and closes report and the null device. If the thread
// takes longer than startWait, the start fails, and the process is killed: by the
// thread if it forks later, otherwise here.
func (h *Host) fork(opts Options, report *os.File) (*os.Process, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	proc, err := child.Ask(ctx, h.thread, func() (*os.Process, error) { return fork(opts, report) }, kill, report.Close, opts.null.Close)
	return proc, explain(err)
}

// kill ends a process that has not been set up.
func kill(proc *os.Process) error {
	err := proc.Kill()
	_, waitErr := proc.Wait()
	return errors.Join(err, waitErr)
}

// awaitPlace waits for the program's first report.
func awaitPlace(reports *os.File) error {
	if err := reports.SetReadDeadline(time.Now().Add(startWait)); err != nil {
		return err
	}
	number, err := readReport(reports)
	if err != nil {
		return fmt.Errorf("wait for its first message: %w", err)
	}
	if number != 0 {
		return fmt.Errorf("change its root: %w", unix.Errno(-number))
	}
	return reports.SetReadDeadline(time.Time{})
}

func readReport(reports io.Reader) (int32, error) {
	var report [4]byte
	if _, err := io.ReadFull(reports, report[:]); err != nil {
		return 0, err
	}
	return int32(binary.NativeEndian.Uint32(report[:])), nil
}

// follow queues signals until the process has ended.
func (p *Process) follow(reports *os.File) {
	defer close(p.done)
	for {
		number, err := readReport(reports)
		if err != nil {
			break
		}
		select {
		case p.signals <- unix.Signal(number):
		default: // dropped, as the kernel drops a signal that is pending
		}
	}
	_ = p.end(reports) // how it ended does not matter
}

func (p *Process) end(reports *os.File) error {
	_, err := p.proc.Wait()
	return errors.Join(err, reports.Close())
}

// signalQueue is how many signals are queued for the reader.
const signalQueue = 32

// PID is the process's id on the host, also after its end.
func (p *Process) PID() int { return p.pid }

// Signals returns a channel with the signals sent to the process, except
// SIGKILL and SIGSTOP. It is never closed.
func (p *Process) Signals() <-chan unix.Signal { return p.signals }

// Done is closed when the process has ended and its pid is free.
func (p *Process) Done() <-chan struct{} { return p.done }

// kill ends the process and waits for Done as long as ctx allows.
func (p *Process) kill(ctx context.Context) error {
	if err := p.proc.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill stand-in process %d: %w", p.pid, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for killed stand-in process %d: %w", p.pid, context.Cause(ctx))
	}
}

// shownBytes bounds the command line, which is only for display.
const shownBytes = 4096

// shownArgs turns any words into a valid command line.
func shownArgs(args []string) []string {
	var shown []string
	room := shownBytes
	for _, arg := range args {
		if arg = strings.ReplaceAll(arg, "\x00", " "); len(arg) >= room {
			return append(shown, arg[:room])
		}
		shown = append(shown, arg)
		room -= len(arg) + 1
	}
	if len(shown) == 0 {
		shown = []string{"container"}
	}
	return shown
}

// commandName returns the file name under which the program is run, which
// becomes the process's name (proc(5), comm).
func commandName(args []string) string {
	const longest = 15
	name := path.Base(args[0])
	switch name {
	case ".", "..", "/", "-":
		name = "container"
	}
	return name[:min(len(name), longest)]
}
