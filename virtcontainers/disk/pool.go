package disk

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// Machine is the VM as its disks see it. One that is a hypervisor.Detacher,
// too, loses disks again that nobody uses.
type Machine interface {
	Attach(ctx context.Context, d hypervisor.Device) error
	Locate(id string) (hypervisor.Location, error)
}

// Options are what all disks of a machine have in common.
type Options struct {
	Bus                                 hypervisor.DiskBus
	AIO                                 hypervisor.DiskAIO
	Cache                               hypervisor.DiskCache
	LogicalBlockSize, PhysicalBlockSize uint32
}

// Source is a file or block device of the host.
type Source struct {
	Path string
	// ReadOnly is set when the guest may not write.
	ReadOnly bool
}

// Disk is a disk that is attached: Driver and Place are what api.BlockDevice
// calls driver and source.
type Disk struct{ Driver, Place string }

// Pool is the disks of one machine. Its methods may be called from several
// goroutines.
type Pool struct {
	machine Machine
	opts    Options
}

// NewPool makes a Pool without disks.
func NewPool(machine Machine, opts Options) *Pool {
	return &Pool{machine: machine, opts: opts}
}

// Use attaches a disk, unless it is, and counts one more user of it. Who fails
// has not used it.
func (p *Pool) Use(_ context.Context, src Source) (*Disk, error) {
	return nil, fmt.Errorf("attach disk %s: %w", src.Path, errdefs.ErrNotImplemented)
}

// Release counts one user less; with the last the disk is detached. The guest
// must have let go of it. After an error it may be called again.
func (p *Pool) Release(context.Context, *Disk) error { return nil }
