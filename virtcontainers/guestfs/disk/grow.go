package disk

import (
	"context"
	"fmt"
	"math"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/internal/intime"
)

// Grow makes a disk larger, for all its users, and returns how many bytes the
// guest will see. A block device has been grown on the host before and has at
// least want bytes; the guest sees all its whole sectors. A file is grown to want
// bytes, rounded up to whole sectors, unless it has them; want is 0 for what it
// has already. Within ctx it blocks while another call works on the same disk, while
// the file system of its path hangs, and while QEMU grows it. It opens neither a file
// nor a device.
//
// A device with less, or with less than the guest has seen, a disk that is read-only,
// or a path that leads elsewhere by now is an errdefs.ErrFailedPrecondition, a file with
// more is an errdefs.ErrInvalidArgument: a disk does not shrink. The guest's file system
// is not touched.
func (p *Pool) Grow(ctx context.Context, d *Disk, want uint64) (uint64, error) {
	e := p.holdUsed(d)
	if e == nil {
		return 0, fmt.Errorf("grow disk: it has no user: %w", errdefs.ErrNotFound)
	}
	defer p.drop(e)
	bytes, err := p.grow(ctx, e, want)
	if err != nil {
		return 0, fmt.Errorf("grow disk %s: %w", e.src.Path, err)
	}
	return bytes, nil
}

func (p *Pool) grow(ctx context.Context, e *entry, want uint64) (uint64, error) {
	if err := e.begin(ctx); err != nil {
		return 0, err
	}
	defer e.end()
	if e.id == "" || e.kept {
		return 0, fmt.Errorf("it is being detached: %w", errdefs.ErrFailedPrecondition)
	}
	bytes, err := e.lengthFor(ctx, want)
	if err != nil {
		return 0, err
	}
	return bytes, p.growTo(ctx, e, bytes)
}

// lengthFor returns what the length of an attached disk is to be. The caller holds the
// entry's turn.
func (e *entry) lengthFor(ctx context.Context, want uint64) (uint64, error) {
	path, key := e.src.Path, e.key
	length, err := intime.Call(ctx, func() (uint64, error) { return lengthAt(path, key) }, nil)
	switch {
	case err != nil:
		return 0, err
	case key.device:
		return e.growDevice(length, want)
	}
	return growFile(length, want, e.blocks.unit())
}

// lengthAt returns the length of a source that path must still lead to.
func lengthAt(path string, key identity) (uint64, error) {
	f, err := find(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if f.key != key {
		return 0, fmt.Errorf("the path leads to another file than the disk's %s: %w", key, errdefs.ErrFailedPrecondition)
	}
	return f.length()
}

// growDevice returns the new length of a block device's disk.
func (e *entry) growDevice(length, want uint64) (uint64, error) {
	whole := e.blocks.whole(length)
	switch {
	case want > whole:
		return 0, fmt.Errorf("the block device has %d bytes, want %d: grow the device first: %w", whole, want, errdefs.ErrFailedPrecondition)
	case whole < e.length:
		return 0, fmt.Errorf("the block device has %d bytes, and the guest's disk %d: a disk does not shrink: %w", whole, e.length, errdefs.ErrFailedPrecondition)
	}
	return whole, nil
}

// growFile returns the new length of a file, in whole blocks.
func growFile(length, want, block uint64) (uint64, error) {
	switch {
	case want == 0:
		want = length
	case want < length:
		return 0, fmt.Errorf("the file has %d bytes, want %d: a disk does not shrink: %w", length, want, errdefs.ErrInvalidArgument)
	case want > math.MaxInt64-block:
		return 0, fmt.Errorf("want %d bytes, more than a file can have: %w", want, errdefs.ErrInvalidArgument)
	}
	return (want + block - 1) / block * block, nil
}
