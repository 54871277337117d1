package guestfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
	"github.com/katabox/katabox/virtcontainers/guestfs/storage"
)

// Guest is what a pod's files need of its agent; see guest.Client.
type Guest interface {
	AddStorages(ctx context.Context, storages []*api.Storage) error
	ChangeFiles(ctx context.Context, changes []*api.FileChange) error
	ReadFile(ctx context.Context, path string) ([]byte, error)
	VolumeStats(ctx context.Context, target string) (guest.VolumeStats, error)
	GrowVolume(ctx context.Context, target string, diskBytes uint64) error
	Reverse(ctx context.Context, open *api.ReverseOpen) (guest.Conn, error)
}

// Options describe the pod.
type Options struct {
	// ID is the sandbox's id, a single path component.
	ID string
	// Scratch is an existing directory of the host; it is not changed.
	Scratch string
	// ShmBytes is the size of the pod's shared memory (/dev/shm); 0 is
	// DefaultShmBytes.
	ShmBytes uint64
	// MemoryBytes is what the pod's containers may use together; 0 is no limit.
	MemoryBytes uint64
	Config      *config.Config
}

// Pod is the files of a pod: its share, its disks and the volumes that its
// containers have in common. It is opened, then attached to the machine, then
// connected to the guest; only then may it have containers, and its methods be
// called from several goroutines.
type Pod struct {
	opts  Options
	share *storage.Share // nil for none
	// logger is the pod's, for the lines of the share's daemon.
	logger atomic.Pointer[log.Entry]

	// Set by Attach.
	vm    hypervisor.VM
	disks *disk.Pool

	// Set by Connect.
	guest Guest
	gone  func() bool

	volumes  podVolumes
	assigned assignedVolumes
	groups   groupsGiven
	raw      rawDisks
}

// Open starts the pod's shared file system, unless the configuration has none.
// On an error nothing is left.
func Open(ctx context.Context, opts Options) (*Pod, error) {
	p, err := OpenSpare(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := p.Give(ctx, opts); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
		defer cancel()
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

// WithoutShare returns the files of a machine without a pod that has no share, as
// if shared_fs were "none".
func WithoutShare(opts Options) *Pod {
	return &Pod{opts: opts, volumes: newPodVolumes(), raw: newRawDisks()}
}

// OpenSpare is Open for a machine without a pod: Give makes the files a pod's.
func OpenSpare(ctx context.Context, opts Options) (*Pod, error) {
	p := WithoutShare(opts)
	p.logger.Store(log.G(ctx))
	if opts.Config.Hypervisor.SharedFS == config.SharedFSNone {
		return p, nil
	}
	fs := opts.Config.Hypervisor.VirtioFS
	if fs.Daemon == "" && len(fs.ExtraArgs) > 0 {
		return nil, fmt.Errorf("virtio_fs_extra_args has %q, and virtio_fs_daemon is empty: the shim serves the share and takes no arguments: remove them, or name the daemon that they are for: %w",
			fs.ExtraArgs, errdefs.ErrInvalidArgument)
	}
	share, err := storage.OpenShare(ctx, storage.ShareOptions{
		ID: opts.ID, Scratch: opts.Scratch, Daemon: fs.Daemon, Cache: string(fs.Cache), QueueSize: fs.QueueSize,
		ExtraArgs: fs.ExtraArgs, Tag: api.ShareTag,
		LogLine: func(line string) { p.logger.Load().WithField("source", "virtiofsd").Info(line) },
	})
	if err != nil {
		return nil, err
	}
	p.share = share
	return p, nil
}

// Give makes the files of a machine without a pod a pod's, whose share is
// configured as the machine's (ShareConfig). It is called once; after an error the
// files can only be closed.
func (p *Pod) Give(ctx context.Context, opts Options) error {
	p.opts = opts
	p.logger.Store(log.G(ctx))
	if p.vm != nil {
		p.makeDisks()
	}
	binds := opts.Config.Runtime.SandboxBindMounts
	if len(binds) == 0 {
		return nil
	}
	if p.share == nil {
		return fmt.Errorf(`sandbox_bind_mounts has %q, and shared_fs is "none": %w`, binds, errdefs.ErrInvalidArgument)
	}
	if err := p.share.BindForPod(ctx, binds); err != nil {
		return fmt.Errorf("sandbox_bind_mounts: %w", err)
	}
	return nil
}

// ShareConfig describes the share of a configuration's pods. A share serves the
// pods of the same description.
func ShareConfig(h config.Hypervisor) string {
	// Quoted: two arguments must not look like one with a blank.
	return fmt.Sprintf("shared_fs %s, virtio_fs %#v", h.SharedFS, h.VirtioFS)
}

// Attach gives the machine the share's device. From now on the machine gets the
// containers' disks. It is called once.
func (p *Pod) Attach(ctx context.Context, vm hypervisor.VM) error {
	p.vm = vm
	p.makeDisks()
	if p.share == nil {
		return nil
	}
	return p.share.Attach(ctx, vm)
}

// makeDisks makes the pool of disks as the configuration says; it has none yet.
func (p *Pod) makeDisks() { p.disks = disk.NewPool(p.vm, diskOptions(p.opts.Config.Hypervisor)) }

// Connect sets how the guest is reached. gone reports whether the guest, with
// everything in it, has ended. Connect is called once for each pod (Give).
func (p *Pod) Connect(agent Guest, gone func() bool) { p.guest, p.gone = agent, gone }

// Close ends the share, with everything that containers have in it. It may be
// called again, and while containers are left: their Release then does nothing
// to the share.
func (p *Pod) Close(ctx context.Context) error {
	if p.share == nil {
		return nil
	}
	return p.share.Close(ctx)
}

// DaemonPID is the process id of an external virtiofsd, 0 if there is none.
func (p *Pod) DaemonPID() int {
	if p.share == nil {
		return 0
	}
	return p.share.PID()
}

// Shares reports whether the pod has a share.
func (p *Pod) Shares() bool { return p.share != nil }

// Done is closed when the share is no longer served: containers have lost their
// files. Without a share it is never closed.
func (p *Pod) Done() <-chan struct{} {
	if p.share == nil {
		return nil
	}
	return p.share.Done()
}

// Err returns why Done is closed.
func (p *Pod) Err() error { return p.share.Err() }

// ExplainDaemon adds to err why the external daemon ended, if it did, and its
// last output.
func (p *Pod) ExplainDaemon(err error) error { return p.share.Explain(err) }

// ExplainState adds to err why the share's part of the machine's state could not be
// saved or loaded, if that is so.
func (p *Pod) ExplainState(err error) error {
	if p.share == nil {
		return err
	}
	return p.share.ExplainState(err)
}

// Settled returns an error if the guest, whose machine has stopped, waits for an answer
// of the share's: its memory would not have it.
func (p *Pod) Settled() error {
	if p.share == nil {
		return nil
	}
	return p.share.Settled()
}

// NewOutput returns a file for one connection of an output, or nil: then its bytes come
// over the connection alone, which is slower.
func (p *Pod) NewOutput(ctx context.Context) guest.OutputFile {
	if p.share == nil {
		return nil
	}
	file, err := p.share.NewOutput()
	if err != nil {
		log.G(ctx).WithError(err).Debug("an output has no file")
		return nil
	}
	return file
}

// HasDisks reports whether a container or a volume of the pod uses a disk of
// the host: the guest must flush it before it ends.
func (p *Pod) HasDisks() bool { return p.disks != nil && p.disks.Len() > 0 }

// removeInGuest removes what was copied to a path in the guest. A guest that
// has ended has nothing to remove.
func (p *Pod) removeInGuest(ctx context.Context, path string) error {
	if p.gone() {
		return nil
	}
	err := p.guest.ChangeFiles(ctx, []*api.FileChange{{Path: path, Change: &api.FileChange_Remove{Remove: &api.Remove{}}}})
	if errdefs.IsNotFound(err) || guest.Disconnected(err) || p.gone() {
		return nil
	}
	return err
}

// diskOptions are the options of all of the machine's disks.
func diskOptions(h config.Hypervisor) disk.Options {
	opts := disk.Options{
		Bus: hypervisor.DiskBus(h.BlockDriver), AIO: hypervisor.DiskAIO(h.BlockAIO),
		LogicalBlockSize: h.BlockLogicalSector, PhysicalBlockSize: h.BlockPhysicalSector,
	}
	if h.BlockCache.Set {
		opts.Cache = hypervisor.DiskCache{Direct: h.BlockCache.Direct, NoFlush: h.BlockCache.NoFlush}
	}
	return opts
}

// UnmountBundle unmounts the root file system of a bundle whose shim is dead.
func UnmountBundle(dir string) error { return storage.UnmountRootfs(filepath.Join(dir, "rootfs")) }
