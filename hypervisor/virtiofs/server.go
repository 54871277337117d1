package virtiofs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/vhostuser"
	"github.com/katabox/katabox/hypervisor/virtiofs/contain"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// Options describe what a Server serves.
type Options struct {
	// Root is the share's root directory, opened with O_PATH, and Mounts the
	// mount namespace that it is in (/proc/PID/ns/mnt). The caller owns both
	// and must keep them open until Close has returned.
	Root, Mounts *os.File
	// Policy returns how a mount at a path of the share is cached, and Special what the
	// guest may make there; both are passthrough.Options'.
	Policy  func(path string) passthrough.Policy
	Special func(path string) passthrough.Special
}

// Server serves a share to one virtual machine.
type Server struct {
	fs   *passthrough.FS
	jail contain.Jail
	dev  *device
	pool *pool

	cancel context.CancelFunc
	failed chan error    // capacity 1: why the device cannot continue
	served chan struct{} // closed when the front end's connection has ended
	err    error         // why it ended; set before served is closed

	mu     sync.Mutex
	front  *os.File // nil once taken
	closed bool
}

// closeWait is how long Close waits for the front end's connection to end, then
// for requests that are being served, and then for files to be closed. What takes longer
// waits for a hung file system, and the pod's teardown has already waited for the guest.
const closeWait = 10 * time.Second

// dropWait is how long Drop waits for files to be closed: a container's deletion has
// more to do.
const dropWait = 3 * time.Second

// Start starts to serve. It fails if the host's kernel cannot confine threads.
func Start(ctx context.Context, opts Options) (_ *Server, err error) {
	s := &Server{failed: make(chan error, 1), served: make(chan struct{})}
	if s.fs, err = passthrough.New(passthrough.Options{Root: opts.Root, Policy: opts.Policy, Special: opts.Special, Requests: s.requests}); err != nil {
		return nil, err
	}
	s.jail = contain.Jail{Mounts: opts.Mounts, Root: opts.Root}
	if s.jail.Descriptors, err = contain.OpenDescriptors(); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	back, err := s.open()
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go s.serve(ctx, back)
	return s, nil
}

// requests returns how many of the guest's requests may be unanswered: each takes an entry
// of its queue (VIRTIO_RING_F_INDIRECT_DESC).
func (s *Server) requests() int { return min(s.dev.queues[requestQueue].Size(), maxRequests) }

// serve serves the front end until it closes, or a thread fails.
func (s *Server) serve(ctx context.Context, back *net.UnixConn) {
	defer close(s.served)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		select {
		case err := <-s.failed:
			fail(err)
		case <-ctx.Done():
		}
	}()
	s.err = vhostuser.Serve(ctx, back, s.dev)
	if cause := context.Cause(ctx); s.err != nil && cause != nil {
		s.err = cause
	}
}

// open makes what Start needs besides the files: queues, threads, the sockets.
func (s *Server) open() (back *net.UnixConn, err error) {
	s.dev = newDevice()
	if s.pool, err = newPool(s.dev, s.fs, s.jail, s.failed); err != nil {
		return nil, err
	}
	s.dev.by.Store(&server{pool: s.pool})
	back, s.front, err = child.Socket("vhost-user-fs")
	return back, err
}

// release releases everything but the connection.
func (s *Server) release() error {
	var err error
	if s.pool != nil {
		err = s.pool.close(closeWait)
	}
	if err == nil { // otherwise a thread still uses it
		err = s.closeFiles()
	}
	return errors.Join(err, s.jail.Descriptors.Close())
}

// closeFiles closes what the guest has open.
func (s *Server) closeFiles() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeWait, fmt.Errorf("they are not closed after %v", closeWait))
	defer cancel()
	return s.fs.Close(ctx)
}

// Front returns the front end's side of the connection, which the caller then
// owns. It may be called once.
func (s *Server) Front() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	front := s.front
	s.front = nil
	return front
}

// Done is closed when the device is no longer served: the machine has ended, or
// broke the protocol.
func (s *Server) Done() <-chan struct{} { return s.served }

// Err returns why, once Done is closed.
func (s *Server) Err() error {
	if s.err != nil {
		return fmt.Errorf("virtio-fs device ended: %w", s.err)
	}
	return errors.New("virtio-fs device ended: the machine has closed it")
}

// StateErr returns why the front end's last attempt to save or load what the
// guest knows has failed; nil if it succeeded, or there was none. Errors' classes
// are those of passthrough.FS.Save and Load.
func (s *Server) StateErr() error { return s.dev.state.last() }

// Settled returns an error if the guest, whose machine has stopped, waits for an answer.
// It would be written to the guest's memory at any time, or has been since it stopped.
func (s *Server) Settled() error {
	var errs []error
	for _, q := range s.dev.queues {
		errs = append(errs, q.Settled())
	}
	return errors.Join(errs...)
}

// Drop releases what is mounted at and below paths of the share. It waits up to 3 s for
// files that the guest has left open there to be closed; an error says that the host's file
// system hangs, and all else was done.
func (s *Server) Drop(ctx context.Context, paths ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, dropWait, fmt.Errorf("they are not closed after %v", dropWait))
	defer cancel()
	return s.fs.Drop(ctx, paths...)
}

// Idle reports whether the guest has nothing open in the mounts at and below a path of
// the share, and each of its requests there is answered, also a sync that is about more
// than these mounts. The requests come first: one
// that opens a file has left what HasOpen finds when it is answered.
func (s *Server) Idle(path string) bool {
	return !s.pool.serves(s.fs.Trees(path)) && !s.fs.HasOpen(path)
}

// Close stops serving. When it returns, every write whose success was reported
// to the guest is in the host's file system. It waits up to 10 s each for the
// connection, for requests being served and for files to be closed; what hangs for
// longer is left behind, and the error says so. It may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	front, again := s.front, s.closed
	s.front, s.closed = nil, true
	s.mu.Unlock()
	if again {
		return nil
	}
	var err error
	if front != nil {
		err = front.Close()
	}
	s.cancel()
	select {
	case <-s.served:
		return errors.Join(err, s.release())
	case <-time.After(closeWait):
	}
	// The connection still uses the files and the pool's descriptors.
	s.pool.end()
	return errors.Join(err, fmt.Errorf("end the connection of the front end: it is still being served after %v", closeWait))
}
