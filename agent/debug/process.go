package debug

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/command"
)

// shell is run when no program is named.
const shell = "/bin/sh"

// environment is a process's, beside its TERM.
var environment = []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/"}

// process is one that was started. in and out are the agent's ends of its pipes,
// or both its terminal.
type process struct {
	cmd      *exec.Cmd
	children command.Children
	terminal bool
	in, out  *os.File

	mu   sync.Mutex // guards over
	over bool       // it was waited for, and its number may be another's
}

func (s *Server) start(open *api.DebugOpen) (*process, error) {
	args := open.GetArgs()
	if len(args) == 0 {
		args = []string{shell}
		if _, err := os.Stat(shell); err != nil {
			return nil, fmt.Errorf("the guest image has no shell: %w: use one that has (make guest-image-debug)", err)
		}
	}
	p := &process{children: s.Children, terminal: open.GetTerminal()}
	theirs, err := p.openFiles()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs)
	if p.terminal {
		resize(p.in, open)
	}
	p.cmd = commandOf(args, open.GetTerm())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: p.terminal} // of descriptor 0
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[1]
	if err := p.begin(); err != nil {
		closeAll([]*os.File{p.in, p.out})
		return nil, err
	}
	return p, nil
}

// commandOf looks a program up where the process would.
func commandOf(args []string, term string) *exec.Cmd {
	program := args[0]
	for _, dir := range []string{"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/"} {
		if info, err := os.Stat(dir + args[0]); err == nil && !info.IsDir() {
			program = dir + args[0]
			break
		}
	}
	return &exec.Cmd{Path: program, Args: args, Dir: "/", Env: append([]string{"TERM=" + term}, environment...)}
}

func (p *process) begin() error {
	if err := command.Start(p.cmd, p.children); err != nil {
		return fmt.Errorf("start %.200q: %w", p.cmd.Args[0], err)
	}
	return nil
}

// openFiles opens the agent's ends, and returns the process's: one to read from
// and one to write to.
func (p *process) openFiles() (theirs []*os.File, err error) {
	if p.terminal {
		master, slave, err := openTerminal()
		p.in, p.out = master, master
		return []*os.File{slave, slave}, err
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		closeAll([]*os.File{stdin, in})
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	p.in, p.out = in, out
	return []*os.File{stdin, stdout}, nil
}

// closeAll closes files; one may be there twice.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// kill ends the process and all of its group, unless it is over.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
}

func (p *process) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// wait waits for the process and returns its status.
func (p *process) wait() uint32 {
	err := command.Wait(p.cmd, p.children)
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return 255 // its status was lost
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + uint32(status.Signal())
	}
	return uint32(status.ExitStatus())
}
