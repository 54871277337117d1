package task

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/shim/stdio"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// Publisher takes events for the engine; it must not block.
type Publisher interface {
	Publish(ctx context.Context, topic string, event proto.Message)
}

// Options are what a Service works with.
type Options struct {
	// ID is the sandbox's id: the shim serves only that sandbox and its
	// containers.
	ID string
	// Namespace is the engine's namespace, and Address its own gRPC socket, if it
	// has one.
	Namespace, Address string
	Platform           virtcontainers.Platform
	Publisher          Publisher
	// ExitFIFODir is iSulad's $EXIT_FIFO_DIR, or "".
	ExitFIFODir string
	// KeepExecs, if not 0, replaces the value of the engine's policy.
	KeepExecs time.Duration
	// Exit is called when an engine's Shutdown finds no container left, and when an
	// engine makes no further call after its first Create or Boot has failed.
	Exit func()
	// AbandonAfter is how long to wait for that engine; 0 means 5 s.
	AbandonAfter time.Duration
	// Arrival is when this shim was started; Called is not used.
	Arrival virtcontainers.Arrival
	// Configured, if not nil, is called with the sandbox's options before each of
	// its boots.
	Configured func(virtcontainers.Options)
	// Manage is the sandbox's.
	Manage func(ctx context.Context, s *virtcontainers.Sandbox, dir string) (stop func() error, err error)
}

// Service is the task API of one sandbox.
type Service struct {
	opts   Options
	policy engine.Policy
	exits  *exitFIFOs
	// used is closed by the first Create.
	used     chan struct{}
	usedOnce sync.Once

	mu sync.Mutex // guards what follows
	// called is when the engine first called Create, or zero.
	called time.Time
	// sandbox is nil until the first Create has booted it.
	sandbox *virtcontainers.Sandbox
	booting bool
	// making are the calls of Create and Boot that are under way.
	making []*making
	// keep is set if the sandbox outlives its containers.
	keep bool
	// stopping is set when the shim ends: nothing boots any more.
	stopping bool
	// bootDone is closed when the boot under way has ended.
	bootDone chan struct{}
}

// New makes the service of a sandbox that does not exist yet.
func New(opts Options) *Service {
	policy := engine.For(opts.Namespace, opts.Address)
	if opts.KeepExecs != 0 {
		policy.KeepExecs = opts.KeepExecs
	}
	return &Service{opts: opts, policy: policy, exits: newExitFIFOs(opts.ExitFIFODir), used: make(chan struct{})}
}

// Used returns a channel that is closed when an engine has called Create: a shim
// that is never used has lost its engine.
func (s *Service) Used() <-chan struct{} { return s.used }

// markUsed records that an engine has called Create.
func (s *Service) markUsed() {
	s.usedOnce.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.called = time.Now()
		close(s.used)
	})
}

// Stop ends the sandbox, if there is one, and waits for its end. No other can be made
// then: the shim ends without a second Stop.
func (s *Service) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	if err := s.awaitBoot(ctx); err != nil {
		return err
	}
	sandbox, err := s.current()
	if err != nil {
		return nil //nolint:nilerr // nothing was made
	}
	return sandbox.Stop(ctx)
}

func (s *Service) awaitBoot(ctx context.Context) error {
	s.mu.Lock()
	booting, done := s.booting, s.bootDone
	s.mu.Unlock()
	if !booting {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the sandbox's boot: %w", context.Cause(ctx))
	}
}

// current returns the sandbox that was booted.
func (s *Service) current() (*virtcontainers.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandbox == nil {
		return nil, fmt.Errorf("sandbox %s has no container yet: %w", s.opts.ID, errdefs.ErrNotFound)
	}
	return s.sandbox, nil
}

func (s *Service) container(id string) (*virtcontainers.Container, error) {
	sandbox, err := s.current()
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", id, err)
	}
	return sandbox.Container(id)
}

func (s *Service) process(id, execID string) (*virtcontainers.Process, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	return c.Process(execID)
}

// saveExit keeps a container's exit for "shim delete".
func (s *Service) saveExit(e virtcontainers.Exit) error {
	c, err := s.container(e.ContainerID)
	if err != nil {
		return err
	}
	return bundle.SaveExit(c.Bundle.Dir, bundle.Exit{Status: e.Status, At: e.At})
}

// saveOOM writes the file that engines without events read.
func (s *Service) saveOOM(containerID string) error {
	c, err := s.container(containerID)
	if err != nil {
		return err
	}
	return bundle.SaveOOM(c.Bundle.EngineDir())
}

func shimPID() uint32 { return uint32(os.Getpid()) }

// stdioRequest is a request with paths for stdio.
type stdioRequest interface {
	GetStdin() string
	GetStdout() string
	GetStderr() string
	GetTerminal() bool
}

// newIO makes the stdio of the process of that id, an exec's or a container's.
func (s *Service) newIO(id string, r stdioRequest) (*stdio.IO, error) {
	return stdio.New(stdio.Paths{
		Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(), Terminal: r.GetTerminal(),
		Namespace: s.opts.Namespace, LoggerID: id, ReadersStay: s.policy.ReadersStay, PipesBreak: s.policy.PipesBreak,
	})
}
