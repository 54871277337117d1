package filesync

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/intime"
)

// Guest takes changes of files; guest.Client is one.
type Guest interface {
	ChangeFiles(ctx context.Context, changes []*api.FileChange) error
}

// Limits bound a copy: what is larger is refused.
type Limits struct {
	// Files is how many files, directories and links there may be, not counting
	// the root.
	Files int
	// Bytes is for the contents of all of them.
	Bytes int64
}

// Check returns nil if a file or a directory is within limits, or an
// errdefs.ErrResourceExhausted that says which limit it exceeds. It stops
// counting at the limits.
func Check(path string, limits Limits) error {
	src, err := newSource(path, limits)
	if err != nil {
		return err
	}
	defer src.close()
	_, err = src.look(nil)
	return err
}

// Copy is a copy that is kept up to date.
type Copy struct {
	guest  Guest
	target string
	source *source
	watch  *watcher
	// sent is what the guest has, and skipped what cannot be copied, by path.
	// Only one goroutine uses them at a time: Start's, then run.
	sent    tree
	skipped map[string]string

	closing chan struct{}
	close   sync.Once
	running sync.WaitGroup
}

// Start copies source, a directory or a file of the host, to target in the
// guest, and begins to watch it. ctx's deadline bounds the copying; without one each
// call to the guest has callTimeout. On an error what was copied stays, and the
// caller removes target. The path is resolved once, now: like a bind mount, the copy
// follows this directory, or the files of this name in it, also if it is renamed or
// something else is put or mounted in its place. Until Close the directory is open, and
// a file system that has it cannot be unmounted.
//
// UNIX sockets, FIFOs and device nodes are left out, with a line in the log, and so is
// what has a name that is not UTF-8.
func Start(ctx context.Context, guest Guest, source, target string, limits Limits) (*Copy, error) {
	src, err := newSource(source, limits)
	if err != nil {
		return nil, wrap(err, source)
	}
	c := &Copy{
		guest: guest, target: target, source: src, watch: newWatcher(ctx),
		sent: tree{}, closing: make(chan struct{}),
	}
	if err := c.update(ctx); err != nil {
		c.watch.close()
		src.close()
		return nil, wrap(err, source)
	}
	// The copy outlives the call that asked for it, and ends with Close.
	ctx = context.WithoutCancel(log.WithLogger(ctx, log.G(ctx).WithFields(log.Fields{"source": source, "target": target})))
	c.running.Go(func() {
		defer c.watch.close()
		c.run(ctx)
	})
	return c, nil
}

// Close ends the watch and waits for a call under way, callTimeout at most, or until
// the host's file system answers. The copy stays in the guest. It may be called more
// than once.
func (c *Copy) Close() {
	c.stop()
	c.source.close()
}

// stop is Close, but Back may follow.
func (c *Copy) stop() {
	c.close.Do(func() { close(c.closing) })
	c.running.Wait()
}

// CloseIn is Close, but waits no longer than ctx for a file system that hangs.
func (c *Copy) CloseIn(ctx context.Context) error { return c.endIn(ctx, c.Close) }

func (c *Copy) endIn(ctx context.Context, end func()) error {
	err := intime.Do(ctx, func() error {
		end()
		return nil
	})
	if err != nil {
		return fmt.Errorf("stop copying %s into the guest: %w", c.source.path(), err)
	}
	return nil
}
