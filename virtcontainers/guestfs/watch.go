package guestfs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

const (
	// lookEvery is how often the lengths of containers' block devices are looked at:
	// each is the read of a file in sysfs. Not every driver sends an event (uevent) when
	// a device grows. As often a disk without a container is detached again.
	lookEvery = 10 * time.Second
	// growPatience bounds the growth of the disks, which waits for QEMU.
	growPatience = 10 * time.Second
)

// rawDisks are the disks of block devices of which containers have the nodes.
type rawDisks struct {
	// some has a value when a disk was added.
	some chan struct{}

	mu  sync.Mutex // guards all
	all []*disk.Disk
}

func newRawDisks() rawDisks { return rawDisks{some: make(chan struct{}, 1)} }

// note adds a disk until forget is called.
func (r *rawDisks) note(d *disk.Disk) (forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	select {
	case r.some <- struct{}{}:
	default:
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = slices.DeleteFunc(r.all, func(other *disk.Disk) bool { return other == d })
	}
}

func (r *rawDisks) list() []*disk.Disk {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Watch grows the disks of containers' block devices with the devices, and detaches
// disks that were left without a container, until ctx ends. tryEnter reports whether the
// machine may be changed now, and must be left then: while the pod hibernates, its disks
// stay as they are. Disks of volumes and of root file systems grow only on request
// (GrowVolume).
func (p *Pod) Watch(ctx context.Context, tryEnter func() (leave func(), ok bool)) {
	for {
		select {
		case <-p.raw.some:
		case <-p.disks.Unused():
		case <-ctx.Done():
			return
		}
		p.watchDisks(ctx, tryEnter)
	}
}

// watchDisks is Watch until there is no such disk.
func (p *Pod) watchDisks(ctx context.Context, tryEnter func() (leave func(), ok bool)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		all := p.raw.list()
		if len(all) == 0 && !p.disks.HasUnused() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if leave, ok := tryEnter(); ok {
			p.followRaw(ctx, all)
			p.disks.DetachUnused(ctx)
			leave()
			// A tick of meanwhile would have it entered again at once: what waits until
			// the machine is left (Hibernate) would never have its turn.
			tick.Reset(lookEvery)
		}
	}
}

// followRaw grows the disks, all at once: one that hangs holds up no other.
func (p *Pod) followRaw(ctx context.Context, disks []*disk.Disk) {
	ctx, cancel := context.WithTimeout(ctx, growPatience)
	defer cancel()
	var all sync.WaitGroup
	for _, d := range disks {
		all.Go(func() { p.disks.Follow(ctx, d) })
	}
	all.Wait()
}
