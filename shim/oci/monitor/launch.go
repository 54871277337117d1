package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/shim/descriptors"
)

// roleEnv makes kata-runtime a monitor; see Main.
const roleEnv = "_KATABOX_MONITOR"

// readyTimeout bounds the start of the monitor: an exec of this program and a few
// calls to the shim.
const readyTimeout = time.Minute

// Config names the process that a monitor represents.
type Config struct {
	// Bundle is the directory with the shim's address.
	Bundle string `json:"bundle"`
	// ID is the container's, ExecID "" for its init.
	ID     string `json:"id"`
	ExecID string `json:"exec_id,omitempty"`
	// PID is the process on the host whose namespaces the monitor enters; 0
	// for none.
	PID int `json:"pid,omitempty"`
	// Terminal: stdin, stdout and stderr are one terminal.
	Terminal bool `json:"terminal,omitempty"`
}

// Options are what Launch needs.
type Options struct {
	Config
	// Args are shown as the monitor's command line.
	Args []string
	// Stdio are the FIFOs whose names the shim was given. The caller keeps
	// ownership.
	Stdio *client.Stdio
	// Terminal is the slave of the process's terminal. If it is nil, the monitor
	// inherits this process's stdin, stdout and stderr. The caller keeps
	// ownership.
	Terminal *os.File
}

// Launch starts a monitor as a child of this process, in a new session, and
// returns when the monitor relays and waits. The child outlives this process. On
// an error it has ended.
func Launch(ctx context.Context, o Options) (*os.Process, error) {
	o.Config.Terminal = o.Terminal != nil
	// Descriptors that the engine left open here must not reach a process that
	// outlives it.
	if err := descriptors.KeepFromChildren(controlFD); err != nil {
		return nil, fmt.Errorf("start monitor: keep files from it: %w", err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("start monitor: %w", err)
	}
	defer ours.Close()
	cmd := command(o, theirs)
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start monitor: %w", err)
	}
	if err := handshake(ctx, ours, o.Config); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("start monitor: %w", err)
	}
	return cmd.Process, nil
}

func command(o Options, control *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = o.Args
	cmd.Env = []string{roleEnv + "=1", "GOMAXPROCS=2", "GOGC=40"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Terminal != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Terminal, o.Terminal, o.Terminal
		cmd.SysProcAttr.Setctty = true // so that it gets signals for resizing and hanging up
	}
	cmd.ExtraFiles = []*os.File{control, o.Stdio.Stdin, o.Stdio.Stdout, o.Stdio.Stderr}
	return cmd
}

// socketPair makes the control connection: it carries the configuration to the
// monitor, and back that the monitor is ready, or why it is not.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// ready is the answer of a monitor that is ready.
const ready = "ready"

// maxAnswer bounds a monitor's answer, in bytes.
const maxAnswer = 64 << 10

func handshake(ctx context.Context, control *os.File, cfg Config) error {
	if err := control.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = control.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(control).Encode(cfg); err != nil {
		return fmt.Errorf("send configuration: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(control, maxAnswer))
	switch said := strings.TrimSpace(string(answer)); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case said == ready:
		return nil
	case said != "":
		return errors.New(said)
	case err != nil:
		return fmt.Errorf("wait until it is ready: %w", err)
	}
	return errors.New("it ended before it was ready")
}
