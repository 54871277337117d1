package disk

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/ctxmutex"
	"github.com/katabox/katabox/internal/intime"
)

// Machine is what the disks need of a hypervisor.VM. A machine that cannot
// detach keeps its disks until it ends.
type Machine interface {
	hypervisor.Attacher
	hypervisor.Detacher
	hypervisor.DiskGrower
	Locate(id string) (hypervisor.Location, error)
	Done() <-chan struct{}
}

// Options are what all disks of a machine have in common. A block size of 0 is that of
// a block device, and the VMM's default for a file.
type Options struct {
	Bus                                 hypervisor.DiskBus
	AIO                                 hypervisor.DiskAIO
	Cache                               hypervisor.DiskCache
	LogicalBlockSize, PhysicalBlockSize uint32
}

// Source is a file or block device of the host.
type Source struct {
	Path string
	// ReadOnly forbids the guest to write.
	ReadOnly bool
	// Direct bypasses the host's page cache, also if the Options' Cache does not. A
	// disk that is attached already stays as it is.
	Direct bool
}

// Disk is one user's handle on an attached disk: Driver and Place are what
// api.Device calls driver and source.
type Disk struct{ Driver, Place string }

// Pool is the disks of one machine. Its methods may be called from several
// goroutines.
type Pool struct {
	machine Machine
	opts    Options

	mu    sync.Mutex
	disks map[identity]*entry
	// users has the entry of each Disk that Use returned and that was not
	// released.
	users map[*Disk]*entry
	// last is the number in the ID of the newest disk.
	last int
	// plainAIO is set once the asynchronous I/O of opts has failed.
	plainAIO bool
	// warnCached logs that a disk is not read and written by native AIO.
	warnCached sync.Once
	// unused has a value when a disk was left without a user.
	unused chan struct{}
}

// entry is a file or block device that is or was in use.
type entry struct {
	key identity
	// refs counts the callers that hold calls or wait for it. The pool's mu
	// guards it. An entry without a disk is removed when refs becomes 0.
	refs int
	// calls guards the fields below. It is held across calls to the VM.
	calls ctxmutex.Mutex

	id     string // of the device; empty when it is not attached
	src    Source
	blocks blockSizes
	// length is what the guest sees, in bytes; shown is the device's own when Follow
	// last looked.
	length, shown uint64
	at            Disk
	// users are the handles on it.
	users map[*Disk]bool
	// kept is set if the machine was asked to attach or to unplug the disk and has
	// not confirmed it. It may still do so.
	kept bool
}

// NewPool makes a Pool without disks.
func NewPool(machine Machine, opts Options) *Pool {
	return &Pool{
		machine: machine, opts: opts, disks: make(map[identity]*entry), users: make(map[*Disk]*entry),
		unused: make(chan struct{}, 1),
	}
}

// Use attaches a disk, unless it is attached, and returns a new handle on it.
// On error the users are unchanged. It blocks while another call works on the
// same disk, within ctx.
//
// A disk that is attached for writing also serves read-only users: the guest
// has to enforce that they only read. A disk that is attached read-only cannot
// become writable (errdefs.ErrFailedPrecondition). A block device that the host
// uses is refused with the same error; anything that is neither a regular file
// nor a block device, or is empty, with errdefs.ErrInvalidArgument.
func (p *Pool) Use(ctx context.Context, src Source) (*Disk, error) {
	d, err := p.use(ctx, src)
	if err != nil {
		return nil, fmt.Errorf("attach disk %s: %w", src.Path, err)
	}
	return d, nil
}

func (p *Pool) use(ctx context.Context, src Source) (*Disk, error) {
	f, err := intime.Call(ctx, func() (*found, error) { return find(src.Path) }, func(f *found) { _ = f.Close() })
	if err != nil {
		return nil, err
	}
	defer f.Close()
	e := p.hold(f.key)
	defer p.drop(e)
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	defer e.end()
	if err := p.ready(ctx, e, f, src); err != nil {
		return nil, err
	}
	d := new(Disk)
	*d = e.at
	e.users[d] = true
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users[d] = e
	return d, nil
}

// ready attaches the disk if needed, with the access wanted. The caller holds
// the entry's turn.
func (p *Pool) ready(ctx context.Context, e *entry, f *found, src Source) error {
	if e.kept { // The machine may still attach or unplug it at any time: the disk is unusable.
		if err := p.detach(ctx, e); err != nil {
			return fmt.Errorf("an earlier attach or detach of this disk is not finished: %w", err)
		}
	}
	if e.id == "" {
		return p.attach(ctx, e, f, src)
	}
	if e.src.ReadOnly && !src.ReadOnly {
		return fmt.Errorf("for writing: it is attached read-only as %s: %w", e.src.Path, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// Len returns how many disks are in use.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.disks)
}

// Release drops a handle; with the last one the disk is detached. The guest
// must no longer use the disk. After an error the disk stays until DetachUnused,
// and Release may be called again. For a Disk that was already released, or nil, it
// does nothing. It blocks while another call works on the same disk, within ctx.
func (p *Pool) Release(ctx context.Context, d *Disk) error {
	e := p.holdUsed(d)
	if e == nil {
		return nil
	}
	defer p.drop(e)
	if err := p.release(ctx, e, d); err != nil {
		return fmt.Errorf("detach disk %s: %w", e.key, err)
	}
	return nil
}

func (p *Pool) release(ctx context.Context, e *entry, d *Disk) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.end()
	delete(e.users, d)
	if len(e.users) == 0 && e.id != "" {
		if err := p.detach(ctx, e); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.users, d)
	return nil
}

// hold returns the entry of a file or block device. drop must follow.
func (p *Pool) hold(key identity) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.disks[key]
	if !ok {
		e = &entry{key: key, calls: ctxmutex.New(), users: make(map[*Disk]bool)}
		p.disks[key] = e
	}
	e.refs++
	return e
}

// holdUsed returns the entry of a handle, or nil if that was released. Unless it is nil,
// drop must follow.
func (p *Pool) holdUsed(d *Disk) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.users[d]
	if e != nil {
		e.refs++
	}
	return e
}

func (p *Pool) drop(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.refs--
	switch {
	case e.refs == 0 && e.id == "" && p.disks[e.key] == e:
		delete(p.disks, e.key)
	case e.unused():
		select {
		case p.unused <- struct{}{}:
		default:
		}
	}
}

// begin waits for a concurrent call. end must follow.
func (e *entry) begin(ctx context.Context) error {
	if err := e.calls.Lock(ctx); err != nil {
		return fmt.Errorf("wait for a concurrent call for the same disk: %w", err)
	}
	return nil
}

func (e *entry) end() { e.calls.Unlock() }
