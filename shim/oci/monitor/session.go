package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// callTimeout bounds every call to the shim except Wait.
const callTimeout = 30 * time.Second

// session is one process from its start to its end.
type session struct {
	cfg     Config
	shim    *client.Shim
	streams streams
	relays  []*relay
	signals *signals
	// impatience bounds the wait for the output's reader.
	impatience *impatience
	// ended receives the exit code once.
	ended chan uint32
	// job: this process is in its caller's session, in which it may be a shell's job. A
	// monitor leads a session, and is no job.
	job bool
}

// open connects to the shim.
func open(cfg Config, s streams) (*session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	shim, err := client.Connect(ctx, cfg.Bundle)
	if err != nil {
		return nil, err
	}
	return &session{cfg: cfg, shim: shim, streams: s, impatience: newImpatience(), ended: make(chan uint32, 1)}, nil
}

// begin starts waiting for the process, handling signals and relaying. The request to
// wait has been sent when it returns: if this process is killed from then on, the shim
// kills the other.
func (s *session) begin(ctx context.Context) error {
	answer, err := s.shim.BeginWait(ctx, &task.WaitRequest{ID: s.cfg.ID, ExecID: s.cfg.ExecID})
	if err != nil {
		return err
	}
	s.signals = catch(s)
	s.relays = s.streams.relay()
	go func() { s.ended <- s.exitCode(answer()) }()
	return nil
}

// check verifies that the shim answers and knows the process. The shim has read begin's
// request when it answers.
func (s *session) check() error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := s.shim.State(ctx, &task.StateRequest{ID: s.cfg.ID, ExecID: s.cfg.ExecID})
	return err
}

// exitCode returns the exit code from the answer to Wait. If the shim is gone, it is the
// code that the shim wrote down, if it did.
func (s *session) exitCode(resp *task.WaitResponse, err error) uint32 {
	if err == nil {
		return resp.ExitStatus
	}
	s.impatience.set()
	if exit, err := bundle.LoadExit(s.cfg.Bundle); err == nil && s.cfg.ExecID == "" {
		return exit.Status
	}
	return exitKilled
}

// end waits for the process's end and its last output, and returns its exit
// code. Signals stay caught: one that comes before this process has exited with that
// code, as from a delete, must not replace it.
func (s *session) end() int {
	code := <-s.ended
	s.impatience.ended(code)
	s.drain()
	s.forget()
	_ = s.shim.Close()
	return int(code & 0xff)
}

// forget removes an exec from the shim: no other command does.
func (s *session) forget() {
	if s.cfg.ExecID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := s.shim.TTRPCTaskService.Delete(ctx, &task.DeleteRequest{ID: s.cfg.ID, ExecID: s.cfg.ExecID})
	if err != nil && !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) {
		log.G(ctx).WithError(err).Debug("exec is not forgotten")
	}
}

// Run does a monitor's work in this process and returns how the process has ended.
// It calls started when everything is ready for the process to start; an error of
// started ends Run. After it signals stay caught: the caller is to exit.
func Run(ctx context.Context, cfg Config, stdio *client.Stdio, started func() error) (Exit, error) {
	streams, restore, err := ownStreams(cfg, stdio)
	if err != nil {
		return Exit{}, err
	}
	defer restore()
	s, err := open(cfg, streams)
	if err != nil {
		return Exit{}, err
	}
	s.job = true
	if err := s.begin(ctx); err != nil {
		_ = s.shim.Close()
		return Exit{}, err
	}
	if err := started(); err != nil {
		s.signals.stop()
		_ = s.shim.Close()
		return Exit{}, fmt.Errorf("start process: %w", err)
	}
	code := s.end()
	return Exit{Code: code, Lost: s.lost()}, nil
}
