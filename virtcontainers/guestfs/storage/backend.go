package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/virtiofs"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// backend is what serves a share to the machine.
type backend interface {
	// PID returns the process id of a daemon, 0 for none.
	PID() int
	// Done is closed when the share is no longer served; Err then returns why.
	Done() <-chan struct{}
	Err() error
	// LastWords returns a daemon's last output, in a form to end an error
	// message.
	LastWords() string
	// Reach is called before the machine has the device, if its memory is
	// private to its process.
	Reach(owner hypervisor.MemoryOwner) error
	// Attached is called when the machine has the device.
	Attached(ctx context.Context) error
	// StateErr returns why the server's state could not be saved or loaded, with
	// the machine's; nil if it could.
	StateErr() error
	// Settled returns an error if a guest whose machine has stopped waits for an
	// answer; a daemon, which does not say, counts as settled.
	Settled() error
	// Drop closes the server's files in directories of the share that were
	// unmounted; an error says that they are not closed in time.
	Drop(ctx context.Context, dirs ...string) error
	// Idle reports whether the guest has nothing open in a directory of the share,
	// and no request under way; a daemon, which does not say, counts as idle.
	Idle(dir string) bool
	// Close ends the service, and may be called again.
	Close(ctx context.Context) error
}

// daemonBackend is an external daemon.
type daemonBackend struct {
	*child.Process
	room *daemonRoom
}

func (d *daemonBackend) PID() int          { return d.Pid() }
func (d *daemonBackend) LastWords() string { return tailOf(d.Process) }
func (d *daemonBackend) StateErr() error   { return nil }
func (d *daemonBackend) Settled() error    { return nil }
func (d *daemonBackend) Idle(string) bool  { return true }

func (d *daemonBackend) Drop(context.Context, ...string) error { return nil }

// Reach implements backend: a daemon maps the machine's memory.
func (d *daemonBackend) Reach(hypervisor.MemoryOwner) error {
	return fmt.Errorf("virtiofsd cannot serve a machine with private memory: %w", errdefs.ErrInvalidArgument)
}

// Attached removes the daemon's start-up files from its view, once it has made
// the share its root: both kinds do that before they answer the first message.
func (d *daemonBackend) Attached(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, enterWait, fmt.Errorf("it did not do so within %v", enterWait))
	defer cancel()
	for !d.room.entered(d.Pid()) {
		select {
		case <-d.Done():
			return d.Err()
		case <-ctx.Done():
			return fmt.Errorf("wait for virtiofsd to make the share its root directory: %w%s", context.Cause(ctx), d.LastWords())
		case <-time.After(enterPoll): // there is nothing to wait on
		}
	}
	return d.room.strip(ctx)
}

// enterWait bounds how long a daemon may take to confine itself: one that was
// told by an option not to would see more than the share. enterPoll is the
// interval of the checks.
const (
	enterWait = 30 * time.Second
	enterPoll = 5 * time.Millisecond
)

func (d *daemonBackend) Close(ctx context.Context) error {
	_ = d.room.close() // the second time it is closed already
	return d.Kill(ctx)
}

func (d *daemonBackend) Err() error {
	return fmt.Errorf("virtiofsd ended: %v%s", d.ExitState(), d.LastWords())
}

// ownBackend is the server in this process.
type ownBackend struct {
	*virtiofs.Server
	root, mounts *os.File
}

func (o *ownBackend) PID() int                       { return 0 }
func (o *ownBackend) LastWords() string              { return "" }
func (o *ownBackend) Attached(context.Context) error { return nil }

func (o *ownBackend) Close(context.Context) error {
	return errors.Join(o.Server.Close(), o.root.Close(), o.mounts.Close())
}

// startOwn starts the in-process server for a space. special is virtiofs.Options'.
func startOwn(ctx context.Context, opts ShareOptions, sp *space, special func(string) passthrough.Special) (_ backend, conn *os.File, err error) {
	o := &ownBackend{}
	o.root, err = ask(ctx, sp, func() (*os.File, error) {
		if err := makeRoot(opts); err != nil {
			return nil, err
		}
		fd, err := unix.Open(rootOf(opts), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, os.NewSyscallError("open", err)
		}
		return os.NewFile(uintptr(fd), "share"), nil
	}, (*os.File).Close)
	if err != nil {
		return nil, nil, err
	}
	if o.mounts, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/mnt", sp.tid)); err != nil {
		return nil, nil, errors.Join(err, o.root.Close())
	}
	o.Server, err = virtiofs.Start(ctx, virtiofs.Options{Root: o.root, Mounts: o.mounts, Policy: policyOf(opts.Cache), Special: special})
	if err != nil {
		return nil, nil, errors.Join(err, o.root.Close(), o.mounts.Close())
	}
	return o, o.Front(), nil
}

// policyOf returns the cache policy of each mount of a share: that of
// virtio_fs_cache, except for root file systems, which mostly their containers
// change: the host does by an engine's cp (docs/adr/0021).
func policyOf(cache string) func(string) passthrough.Policy {
	base := passthrough.Auto
	switch cache {
	case "never":
		base = passthrough.Never
	case "metadata":
		base = passthrough.Metadata
	case "always":
		base = passthrough.Always
	}
	own := passthrough.Auto // the host adds and removes containers
	own.Direct = base.Direct
	return func(where string) passthrough.Policy {
		switch {
		case where == "":
			return own
		case !isRootfs(where) || cache == "never":
			return base
		case cache == "always":
			return passthrough.Exclusive
		}
		return passthrough.Rootfs
	}
}

// abandonWait bounds ending a daemon that will not be used.
const abandonWait = 5 * time.Second

func abandon(daemon *child.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), abandonWait)
	defer cancel()
	return daemon.Kill(ctx)
}
