package disk

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// Follow makes the disk of a block device as large as the host has made the device, for
// all its users. The guest's file system is not touched. A device that has become
// smaller, or whose disk cannot grow, is logged once for each length; the disk stays. It
// does nothing for a file, or for a Disk that was released. It neither opens nor reads the
// device, which may hang: within ctx it blocks while another call works on the same disk,
// and while QEMU grows it.
func (p *Pool) Follow(ctx context.Context, d *Disk) {
	e := p.holdUsed(d)
	if e == nil {
		return
	}
	defer p.drop(e)
	if e.begin(ctx) != nil {
		return // The next call will see it.
	}
	defer e.end()
	if e.id == "" || e.kept || !e.key.device {
		return
	}
	if now, err := deviceLength(e.key.dev); err == nil { // otherwise the host has removed it
		p.follow(ctx, e, e.blocks.whole(now))
	}
}

// follow handles the device's length. The caller holds the entry's turn.
func (p *Pool) follow(ctx context.Context, e *entry, now uint64) {
	seen := e.shown == now
	e.shown = now
	line := log.G(ctx).WithFields(log.Fields{"disk": e.src.Path, "bytes": now})
	switch {
	case now == e.length:
	case now > e.length:
		if err := p.growTo(ctx, e, now); err == nil {
			line.Info("a block device has grown, and its disk in the guest")
		} else if !seen {
			line.WithError(err).Warn("a block device has grown, and the guest does not see it yet: if later tries fail too, restart the pod")
		}
	case !seen:
		line.Warnf("a block device has become smaller: the guest still has a disk of %d bytes, whose end it cannot read or write", e.length)
	}
}

// growTo grows an attached disk. The caller holds the entry's turn.
func (p *Pool) growTo(ctx context.Context, e *entry, bytes uint64) error {
	if e.src.ReadOnly {
		return fmt.Errorf("it is read-only: %w", errdefs.ErrFailedPrecondition)
	}
	if err := p.machine.GrowDisk(ctx, e.id, bytes); err != nil {
		return err
	}
	e.length, e.shown = bytes, bytes
	return nil
}
