package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/virtiofs"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// backend is what serves a share to the machine.
type backend interface {
	// pid is the process id of a daemon, 0 for none.
	pid() int
	// done is closed when nothing is served any more, and err then says why.
	done() <-chan struct{}
	err() error
	// lastWords is what a daemon has said, as the end of an error message.
	lastWords() string
	// attached is called when the machine has the device.
	attached(ctx context.Context) error
	// drop lets go of what was mounted in a directory of the share.
	drop(dir string)
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
func (d *daemonBackend) drop(string)           {}

// attached takes from the daemon what it started from, once it has made the
// share its root: both kinds do before they answer the first message.
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
	return d.room.strip()
}

// enterWait bounds how long a daemon may take to shut itself in: one that is
// given an option not to would have more than the share. enterPoll is how often
// that is looked at.
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
func (o *ownBackend) drop(dir string)       { o.server.Drop(dir) }

func (o *ownBackend) attached(context.Context) error { return nil }

func (o *ownBackend) close(context.Context) error {
	return errors.Join(o.server.Close(), o.root.Close(), o.mounts.Close())
}

// startOwn starts the server in this process for a space.
func startOwn(ctx context.Context, opts ShareOptions, sp *space) (_ backend, conn *os.File, err error) {
	o := &ownBackend{}
	err = sp.do(func() (err error) {
		if err := makeRoot(opts); err != nil {
			return err
		}
		fd, err := unix.Open(rootOf(opts), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("open", err)
		}
		o.root = os.NewFile(uintptr(fd), "share")
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if o.mounts, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/mnt", sp.tid)); err != nil {
		return nil, nil, errors.Join(err, o.root.Close())
	}
	o.server, err = virtiofs.Start(ctx, virtiofs.Options{Root: o.root, Mounts: o.mounts, Policy: policyOf(opts.Cache)})
	if err != nil {
		return nil, nil, errors.Join(err, o.root.Close(), o.mounts.Close())
	}
	return o, o.server.Front(), nil
}

// policyOf is the cache policy of each mount of a share: what virtio_fs_cache
// says, but for the root file systems, which only their containers change.
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
	return func(where string) passthrough.Policy {
		switch {
		case where == "":
			return passthrough.Auto // the host adds and removes containers
		case cache != "never" && isRootfs(where):
			return passthrough.Exclusive
		}
		return base
	}
}

// abandonWait bounds the end of a daemon that nobody will use.
const abandonWait = 5 * time.Second

func abandon(daemon *child.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), abandonWait)
	defer cancel()
	return daemon.Kill(ctx)
}
