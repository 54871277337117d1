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
	// pid returns the process id of a daemon, 0 for none.
	pid() int
	// done is closed when the share is no longer served; err then returns why.
	done() <-chan struct{}
	err() error
	// lastWords returns a daemon's last output, in a form to end an error
	// message.
	lastWords() string
	// reach is called before the machine has the device, if its memory is
	// private to its process.
	reach(owner hypervisor.MemoryOwner) error
	// attached is called when the machine has the device.
	attached(ctx context.Context) error
	// stateErr returns why the server's state could not be saved or loaded, with
	// the machine's; nil if it could.
	stateErr() error
	// settled returns an error if a guest whose machine has stopped waits for an
	// answer; a daemon, which does not say, counts as settled.
	settled() error
	// drop closes the server's files in directories of the share that were
	// unmounted; an error says that they are not closed in time.
	drop(ctx context.Context, dirs []string) error
	// idle reports whether the guest has nothing open in a directory of the share,
	// and no request under way; a daemon, which does not say, counts as idle.
	idle(dir string) bool
	// close ends the service, and may be called again.
	close(ctx context.Context) error
}

// daemonBackend is an external daemon.
type daemonBackend struct {
	*child.Process
	room *daemonRoom
}

func (d *daemonBackend) pid() int              { return d.Pid() }
func (d *daemonBackend) done() <-chan struct{} { return d.Done() }
func (d *daemonBackend) lastWords() string     { return tailOf(d.Process) }
func (d *daemonBackend) stateErr() error       { return nil }
func (d *daemonBackend) settled() error        { return nil }
func (d *daemonBackend) idle(string) bool      { return true }

func (d *daemonBackend) drop(context.Context, []string) error { return nil }

// reach implements backend: a daemon maps the machine's memory.
func (d *daemonBackend) reach(hypervisor.MemoryOwner) error {
	return fmt.Errorf("virtiofsd cannot serve a machine with private memory: %w", errdefs.ErrInvalidArgument)
}

// attached removes the daemon's start-up files from its view, once it has made
// the share its root: both kinds do that before they answer the first message.
func (d *daemonBackend) attached(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, enterWait, fmt.Errorf("it did not do so within %v", enterWait))
	defer cancel()
	for !d.room.entered(d.Pid()) {
		select {
		case <-d.Done():
			return d.err()
		case <-ctx.Done():
			return fmt.Errorf("wait for virtiofsd to make the share its root directory: %w%s", context.Cause(ctx), d.lastWords())
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

func (d *daemonBackend) close(ctx context.Context) error {
	_ = d.room.close() // the second time it is closed already
	return d.Kill(ctx)
}

func (d *daemonBackend) err() error {
	return fmt.Errorf("virtiofsd ended: %v%s", d.ExitState(), d.lastWords())
}

// ownBackend is the server in this process.
type ownBackend struct {
	server       *virtiofs.Server
	root, mounts *os.File
}

func (o *ownBackend) pid() int              { return 0 }
func (o *ownBackend) done() <-chan struct{} { return o.server.Done() }
func (o *ownBackend) err() error            { return o.server.Err() }
func (o *ownBackend) lastWords() string     { return "" }
func (o *ownBackend) stateErr() error       { return o.server.StateErr() }
func (o *ownBackend) settled() error        { return o.server.Settled() }
func (o *ownBackend) idle(dir string) bool  { return o.server.Idle(dir) }

func (o *ownBackend) reach(owner hypervisor.MemoryOwner) error { return o.server.Reach(owner) }

func (o *ownBackend) drop(ctx context.Context, dirs []string) error {
	return o.server.Drop(ctx, dirs...)
}

func (o *ownBackend) attached(context.Context) error { return nil }

func (o *ownBackend) close(context.Context) error {
	return errors.Join(o.server.Close(), o.root.Close(), o.mounts.Close())
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
	o.server, err = virtiofs.Start(ctx, virtiofs.Options{Root: o.root, Mounts: o.mounts, Policy: policyOf(opts.Cache), Special: special})
	if err != nil {
		return nil, nil, errors.Join(err, o.root.Close(), o.mounts.Close())
	}
	return o, o.server.Front(), nil
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
		case where == outputsName:
			return outputPolicy(base)
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
