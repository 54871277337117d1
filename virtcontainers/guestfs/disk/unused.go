package disk

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/containerd/log"
)

// detachPatience bounds the removal of unused disks, which waits for the VMM and the
// guest. A guest that confirms it later has it noticed at the next attempt.
const detachPatience = 2 * time.Second

// Unused has a value when a disk was left without a user: the machine has not
// confirmed that it is detached, or that it was attached. The host cannot use its file
// or block device until DetachUnused has succeeded.
func (p *Pool) Unused() <-chan struct{} { return p.unused }

// HasUnused reports whether such disks are left.
func (p *Pool) HasUnused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.disks {
		if e.unused() {
			return true
		}
	}
	return false
}

// DetachUnused tries once more to detach the disks without a user, all at once: one that
// the guest does not release holds up no other. The guest is given 2 s.
func (p *Pool) DetachUnused(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, detachPatience)
	defer cancel()
	var all sync.WaitGroup
	for _, e := range p.holdUnused() {
		all.Go(func() {
			defer p.drop(e)
			p.detachUnused(ctx, e)
		})
	}
	all.Wait()
}

func (p *Pool) detachUnused(ctx context.Context, e *entry) {
	if e.begin(ctx) != nil {
		return
	}
	defer e.end()
	if e.id == "" || len(e.users) > 0 {
		return // Another call came first.
	}
	line := log.G(ctx).WithField("disk", e.src.Path)
	if err := p.detach(ctx, e); err != nil {
		line.WithError(err).Debug("a disk that no container uses is still attached")
		return
	}
	if e.id != "" {
		return // The machine cannot hot-unplug.
	}
	line.Info("a disk that no container uses is detached: an earlier attempt was not confirmed in time")
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.users, func(_ *Disk, of *entry) bool { return of == e })
}

// holdUnused returns the entries of disks without users. drop must follow for each.
func (p *Pool) holdUnused() []*entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*entry
	for _, e := range p.disks {
		if e.unused() {
			e.refs++
			all = append(all, e)
		}
	}
	return all
}

// unused reports whether nothing uses the entry's disk. The caller holds the pool's mu;
// as long as a call holds the entry, that call decides.
func (e *entry) unused() bool { return e.refs == 0 && e.id != "" && len(e.users) == 0 }
