package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// ShareOptions configure how a pod's share is served.
type ShareOptions struct {
	// ID is the sandbox's id, a single path component.
	ID string
	// Scratch is an existing directory of the host; it is not changed.
	Scratch string
	// Daemon is the executable of an external virtiofsd; if empty, this process
	// serves the share.
	Daemon string
	// Cache is Kata's virtio_fs_cache: never, metadata, auto or always.
	Cache string
	// QueueSize is the request queue's length; 0 is the VMM's default.
	QueueSize uint16
	// ExtraArgs are appended verbatim to the daemon's arguments.
	ExtraArgs []string
	// Tag is the share's name in the guest.
	Tag string
	// LogLine, when not nil, gets each line of the daemon's stderr.
	LogLine func(string)
}

// Share is a directory tree that a guest sees. Its methods may be called from
// several goroutines, but for each container only one at a time.
type Share struct {
	opts   ShareOptions
	space  *space
	served backend
	conn   *os.File // the connection for the VM, until Attach

	volumes  podVolumes
	specials specials
	outputs  outputs

	closed atomic.Bool // set by Close
}

// OpenShare makes an empty share and starts to serve it. A daemon dies with
// this process, even by SIGKILL, and the share ends with both. On an error
// nothing is left.
func OpenShare(ctx context.Context, opts ShareOptions) (_ *Share, err error) {
	s := &Share{opts: opts}
	if s.space, err = newSpace(opts.Scratch); err != nil {
		return nil, fmt.Errorf("make share: %w", err)
	}
	if opts.Daemon == "" {
		s.served, s.conn, err = startOwn(ctx, opts, s.space, s.specials.of)
	} else {
		s.served, s.conn, err = startDaemon(ctx, opts, s.space)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start share: %w", err), s.space.close())
	}
	if s.outputs.dir, err = openOutputs(ctx, s.space, s.root()); err != nil {
		return nil, errors.Join(fmt.Errorf("open the share's directory for output: %w", err), s.abandon(ctx))
	}
	return s, nil
}

// abandon closes a share that was not opened as a whole.
func (s *Share) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWait)
	defer cancel()
	return s.Close(ctx)
}

// Attach gives the VM the share's device. It may be called once.
func (s *Share) Attach(ctx context.Context, vm hypervisor.Attacher) error {
	if owner := hypervisor.OwnerOf(vm); owner != nil {
		if err := s.served.reach(owner); err != nil {
			return fmt.Errorf("attach share: %w", err)
		}
	}
	err := vm.Attach(ctx, hypervisor.FSShare{ID: "share", Tag: s.opts.Tag, Socket: s.conn, QueueSize: s.opts.QueueSize})
	if err != nil {
		return fmt.Errorf("attach share: %w", s.Explain(err))
	}
	err = s.conn.Close()
	s.conn = nil
	return errors.Join(err, s.served.attached(ctx))
}

// PID is the process id of an external daemon, 0 if there is none.
func (s *Share) PID() int { return s.served.pid() }

// Done is closed when the share is no longer served: the guest has lost its
// files.
func (s *Share) Done() <-chan struct{} { return s.served.done() }

// Err returns why Done is closed, with the end of a daemon's stderr.
func (s *Share) Err() error { return s.served.err() }

// endWait is how long Explain waits for a daemon's end: a call that the daemon
// did not answer may fail before its process is reaped.
const endWait = time.Second

// Explain adds to err why the share is no longer served, if so, and the end of
// a daemon's stderr.
func (s *Share) Explain(err error) error {
	select {
	case <-s.served.done():
		return fmt.Errorf("%w: %w", err, s.Err())
	case <-time.After(endWait):
		return fmt.Errorf("%w%s", err, s.served.lastWords())
	}
}

// ExplainState adds to err why the server's part of a machine's state could not be
// saved or loaded, if that is so: the VMM does not know it.
func (s *Share) ExplainState(err error) error {
	if cause := s.served.stateErr(); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Settled returns an error if the guest, whose machine has stopped, waits for an answer
// of the share's: its memory would not have it.
func (s *Share) Settled() error { return s.served.settled() }

// Close stops serving and removes the tree, with everything that containers
// have in it. It waits for no container that is added or removed meanwhile: that
// may hang with a file system of the host. It may be called again.
func (s *Share) Close(ctx context.Context) error {
	first := !s.closed.Swap(true)
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
		s.conn = nil
	}
	if first || s.PID() != 0 {
		errs = append(errs, s.served.close(ctx))
	}
	if first {
		errs = append(errs, s.outputs.close(), s.space.close())
	}
	return errors.Join(errs...)
}

// checkOpen fails once Close has been called.
func (s *Share) checkOpen() error {
	if s.closed.Load() {
		return fmt.Errorf("the share is closed: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}
