package disk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
)

// undoTimeout bounds the removal of a disk whose attaching failed half-way.
const undoTimeout = 10 * time.Second

// attach gives the machine the entry's disk. The caller holds the entry's turn.
func (p *Pool) attach(ctx context.Context, e *entry, f *found, src Source) error {
	file, err := f.openIn(ctx, src.ReadOnly, blockSizes{p.opts.LogicalBlockSize, p.opts.PhysicalBlockSize})
	if err != nil {
		return err
	}
	// Once the disk is attached, the VMM has a duplicate.
	defer file.Close()
	aio, second := p.kindsOfAIO(ctx, src)
	refused, first := p.try(ctx, e, file, src, aio)
	if !refused || second == "" || ctx.Err() != nil || e.id != "" {
		return first
	}
	if _, err := p.try(ctx, e, file, src, second); err != nil {
		return errors.Join(first, err)
	}
	p.fallBack(ctx, "disks are read and written by threads: it failed with "+string(aio), first)
	return nil
}

// cacheOf returns how the host caches a new disk.
func (p *Pool) cacheOf(src Source) hypervisor.DiskCache {
	cache := p.opts.Cache
	cache.Direct = cache.Direct || src.Direct
	return cache
}

// kindsOfAIO returns the kind of asynchronous I/O for a new disk, and the kind
// to try if that is refused, or "" if there is none.
func (p *Pool) kindsOfAIO(ctx context.Context, src Source) (first, second hypervisor.DiskAIO) {
	p.mu.Lock()
	plain := p.plainAIO
	p.mu.Unlock()
	switch {
	case plain || p.opts.AIO == "" || p.opts.AIO == hypervisor.AIOThreads:
		return hypervisor.AIOThreads, ""
	case p.opts.AIO == hypervisor.AIONative && !p.cacheOf(src).Direct:
		p.warnCached.Do(func() {
			log.G(ctx).Warn("disks in the host's page cache are read and written by threads: native needs block_device_cache_direct")
		})
		return hypervisor.AIOThreads, ""
	}
	return p.opts.AIO, hypervisor.AIOThreads
}

// fallBack stops using the configured asynchronous I/O, and logs why, once.
func (p *Pool) fallBack(ctx context.Context, why string, err error) {
	p.mu.Lock()
	again := p.plainAIO
	p.plainAIO = true
	p.mu.Unlock()
	if !again {
		log.G(ctx).WithError(err).Warn(why)
	}
}

// try attaches a disk under a new ID: a failed attempt may still hold its ID. If what
// it has left cannot be removed, the entry stays kept. refused is set if the machine has
// answered that it does not attach the disk.
func (p *Pool) try(ctx context.Context, e *entry, file *opened, src Source, aio hypervisor.DiskAIO) (refused bool, err error) {
	e.id, e.src, e.kept = p.newID(), src, true
	err = p.machine.Attach(ctx, hypervisor.Disk{
		ID: e.id, File: file.File, ReadOnly: src.ReadOnly, Bus: p.opts.Bus, Cache: p.cacheOf(src), AIO: aio,
		LogicalBlockSize: file.blocks.logical, PhysicalBlockSize: file.blocks.physical,
	})
	refused = err != nil && !errors.Is(err, context.DeadlineExceeded)
	if err == nil {
		e.at, err = p.locate(e.id)
	}
	if err != nil {
		return refused, errors.Join(err, p.undo(ctx, e))
	}
	e.kept = false
	e.blocks, e.length, e.shown = file.blocks, file.length, file.length
	return false, nil
}

func (p *Pool) newID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return fmt.Sprintf("disk-%d", p.last)
}

// undo removes what a failed attempt may have left.
func (p *Pool) undo(ctx context.Context, e *entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return p.detach(ctx, e)
}

func (p *Pool) locate(id string) (Disk, error) {
	where, err := p.machine.Locate(id)
	if err != nil {
		return Disk{}, err
	}
	if where.LUN == nil {
		return Disk{Driver: string(hypervisor.VirtioBlk), Place: string(where.PCIPath)}, nil
	}
	return Disk{Driver: "scsi", Place: fmt.Sprintf("%s:%s", where.PCIPath, where.LUN)}, nil
}

// detach removes the entry's disk from the machine. One that cannot hot-unplug keeps a
// disk that it has confirmed, for the next user. The caller holds the entry's turn.
func (p *Pool) detach(ctx context.Context, e *entry) error {
	err := p.machine.Detach(ctx, e.id)
	switch {
	case err == nil, errdefs.IsNotFound(err), p.ended():
		e.id, e.kept = "", false
		return nil
	case errdefs.IsNotImplemented(err):
		if e.kept {
			e.id, e.kept = "", false
		}
		return nil
	case errdefs.IsFailedPrecondition(err):
		// A machine that has not run yet was not asked to unplug: a disk that was
		// usable still is.
		return err
	}
	e.kept = true
	return err
}

// ended reports whether the machine has ended, with all its disks.
func (p *Pool) ended() bool {
	select {
	case <-p.machine.Done():
		return true
	default:
		return false
	}
}
