package disk

import (
	"context"
	"fmt"
	"math"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Grow makes a disk larger, for all its users, and returns how many bytes the
// guest will see. A block device has been grown on the host before and has at
// least want bytes; the guest sees all that it has. A file is grown to want
// bytes, rounded up to whole sectors, unless it has them; want is 0 for what it
// has already. It blocks while another call works on the same disk, within ctx.
//
// A device with less, a disk that is read-only, or a path that leads elsewhere by
// now is an errdefs.ErrFailedPrecondition, a file with more is an
// errdefs.ErrInvalidArgument: a disk does not shrink. The guest's file system is
// not touched.
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
	bytes, err := p.lengthFor(e, want)
	if err != nil {
		return 0, err
	}
	return bytes, p.growTo(ctx, e, bytes)
}

// lengthFor returns what the length of an attached disk is to be.
func (p *Pool) lengthFor(e *entry, want uint64) (uint64, error) {
	f, err := find(e.src.Path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if f.key != e.key {
		return 0, fmt.Errorf("the path leads to another file than the disk's %s: %w", e.key, errdefs.ErrFailedPrecondition)
	}
	file, err := f.reopen(unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if !f.key.device {
		length, err := lengthOf(file)
		if err != nil {
			return 0, err
		}
		return growFile(length, want, uint64(max(e.blocks.logical, sector)))
	}
	length, err := checkLength(file, e.blocks.logical)
	if err != nil {
		return 0, err
	}
	if want > length {
		return 0, fmt.Errorf("the block device has %d bytes, want %d: grow the device first: %w", length, want, errdefs.ErrFailedPrecondition)
	}
	return length, nil
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
