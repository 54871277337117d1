package guestfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"sync"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
	"github.com/katabox/katabox/virtcontainers/guestfs/filesync"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// DefaultShmBytes is the size of a pod's shared memory when the engine sets
// none: that of Docker and Kubernetes.
const DefaultShmBytes = 64 << 20

// EarlyStorages returns what a guest can mount before it has a pod.
func (p *Pod) EarlyStorages() []*api.Storage {
	if p.share == nil {
		return nil
	}
	return []*api.Storage{{Driver: "virtio-fs", Source: api.ShareTag, Target: api.GuestSharedDir}}
}

// Storages returns what the guest mounts for its pod, after EarlyStorages.
func (p *Pod) Storages() []*api.Storage {
	shm := "size=" + strconv.FormatUint(cmp.Or(p.opts.ShmBytes, DefaultShmBytes), 10)
	return []*api.Storage{{Driver: "tmpfs", Target: api.GuestShmDir, Options: []string{"nosuid", "nodev", "noexec", "mode=1777", shm}}}
}

// podVolumes are the volumes that the pod's containers share and that are made
// once, in the guest, and of which the host has no files: their content ends with them.
// They stay until the sandbox ends.
type podVolumes struct {
	mu   sync.Mutex // guards what follows
	made map[string]*podVolume
	// next numbers the paths in the guest.
	next int
}

// podVolume is one of them. target and err are written before ready is closed.
type podVolume struct {
	ready  chan struct{}
	target string
	err    error
}

func newPodVolumes() podVolumes { return podVolumes{made: map[string]*podVolume{}} }

// newTarget returns a new mount point in the guest.
func (p *podVolumes) newTarget() string { return path.Join(api.GuestStorageDir, p.number()) }

// newFiles returns a new path in the guest for a copy.
func (p *podVolumes) newFiles() string { return path.Join(api.GuestFilesDir, p.number()) }

func (p *podVolumes) number() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	return strconv.Itoa(p.next)
}

// once calls fill to make the volume of that key at target, unless it exists, and returns
// its path in the guest. It waits, within ctx, for a concurrent call for the same key. A
// volume that could not be made may be tried again.
func (p *podVolumes) once(ctx context.Context, key string, fill func(target string) error) (string, error) {
	v, mine := p.claim(key)
	if mine {
		// It is below the directory in which ChangeFiles works, so that
		// directories can be made in it.
		target := p.newFiles()
		p.settle(key, v, target, fill(target))
	}
	select {
	case <-v.ready:
	case <-ctx.Done():
		return "", fmt.Errorf("wait for the container that is creating it: %w", context.Cause(ctx))
	}
	if v.err != nil {
		return "", v.err
	}
	return v.target, nil
}

// claim finds the volume of that key; if mine is true, the caller must make it
// and then call settle.
func (p *podVolumes) claim(key string) (v *podVolume, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.made[key]; v != nil {
		return v, false
	}
	v = &podVolume{ready: make(chan struct{})}
	p.made[key] = v
	return v, true
}

// settle records whether the volume was made and wakes its waiters. A volume
// that could not be made may be tried again.
func (p *podVolumes) settle(key string, v *podVolume, target string, err error) {
	v.target, v.err = target, err
	if err != nil {
		p.mu.Lock()
		delete(p.made, key)
		p.mu.Unlock()
	}
	close(v.ready)
}

// hostBinds lists the container's bind mounts that need the host's files, and notes those
// that lead to the guest's own. Where the host has to be asked about a source, that takes
// no longer than ctx.
func (c *Container) hostBinds(ctx context.Context) (binds []guestspec.Bind, err error) {
	kubelet := c.pod.opts.Config.Runtime.KubeletDir
	binds, c.paths.Linked = guestspec.HostBinds(c.Bundle.Spec, guestspec.Sources{
		IsVolume: ask(ctx, &err, func(source string) bool { return volume.IsVolume(kubelet, source) }),
		IsHosts:  ask(ctx, &err, volume.IsHosts),
		InGuest:  ask(ctx, &err, volume.InGuest),
	})
	return binds, err
}

// ask bounds a question about a source on the host by ctx. It sets err if there is no
// answer.
func ask[T any](ctx context.Context, err *error, question func(source string) T) func(source string) T {
	return func(source string) T {
		answer, failed := intime.Call(ctx, func() (T, error) { return question(source), nil }, nil)
		if failed != nil {
			*err = fmt.Errorf("mount %s: %w", source, failed)
		}
		return answer
	}
}

func (p *Pod) volumeOptions() volume.Options {
	r := p.opts.Config.Runtime
	return volume.Options{
		Share: p.share != nil, KubeletDir: r.KubeletDir,
		ImageDirs:   r.EmptyDirMode == config.EmptyDirBlock,
		MemoryBytes: p.opts.MemoryBytes,
	}
}

// addVolumes brings the container's bind mounts into the guest, each by its own
// way.
func (c *Container) addVolumes(ctx context.Context) error {
	binds, err := c.hostBinds(ctx)
	if err != nil {
		return err
	}
	volumes, err := volume.Classify(ctx, binds, c.pod.volumeOptions())
	if err != nil {
		return err
	}
	if err := c.share(ctx, volumes); err != nil {
		return err
	}
	for _, v := range volumes {
		if v.Kind == volume.Shared {
			continue
		}
		at, err := c.addVolume(ctx, v)
		if err != nil {
			return fmt.Errorf("volume %s, mounted at %s: %w", v.Source, c.Bundle.Spec.Mounts[v.Index].Destination, err)
		}
		c.paths.Binds = append(c.paths.Binds, guestspec.Placed{Bind: v.Bind, At: at})
	}
	return c.reserveHugepages()
}

// share puts the Shared volumes and the root file system, unless that consists
// of disks, into the share.
func (c *Container) share(ctx context.Context, volumes []volume.Volume) error {
	var root string
	if c.paths.Rootfs == "" {
		root = c.Bundle.RootfsPath()
	}
	var binds []guestspec.Bind
	for _, v := range volumes {
		if v.Kind == volume.Shared {
			binds = append(binds, v.Bind)
		}
	}
	if c.pod.share == nil || root == "" && len(binds) == 0 {
		return nil
	}
	if c.Saved != nil {
		if err := c.nameAsSaved(binds); err != nil {
			return err
		}
	}
	common, own, err := c.pod.share.AddVolumes(ctx, c.ShareID, binds)
	if err != nil {
		return err
	}
	c.later(func(ctx context.Context) error { return c.pod.share.RemoveContainer(ctx, c.ShareID) })
	shared, err := c.pod.share.AddContainer(ctx, c.ShareID, root, own)
	if err != nil {
		return err
	}
	if root != "" {
		c.paths.Rootfs = shared.Rootfs
	}
	c.paths.Binds = append(append(c.paths.Binds, common...), shared.Binds...)
	return nil
}

// addVolume brings a volume that is not in the container's part of the share into
// the guest, and returns its path there; none for a Device.
func (c *Container) addVolume(ctx context.Context, v volume.Volume) (string, error) {
	if err := c.pod.checkUp(); err != nil {
		return "", err
	}
	switch v.Kind {
	case volume.Copied:
		return c.copyVolume(ctx, v)
	case volume.Memory, volume.Hugepages, volume.Image:
		at, err := c.pod.volume(ctx, v)
		if err != nil {
			return "", err
		}
		c.noteHugepages(v)
		return c.partOfVolume(v, at), nil
	case volume.Direct:
		at, err := c.plugVolume(ctx, v)
		if err != nil {
			return "", err
		}
		return c.partOfVolume(v, at), nil
	case volume.Socket:
		return c.forwardSocket(ctx, v)
	case volume.Device:
		return "", c.addMountedDisk(ctx, v)
	}
	return "", fmt.Errorf("no way to bring in a volume of kind %d", v.Kind)
}

// copyVolume copies a volume into the guest, and keeps the copy up to date as
// long as the container exists.
func (c *Container) copyVolume(ctx context.Context, v volume.Volume) (string, error) {
	target := c.pod.volumes.newFiles()
	c.later(func(ctx context.Context) error { return c.pod.removeInGuest(ctx, target) })
	start := func() (*filesync.Copy, error) {
		return filesync.Start(ctx, c.pod.guest, v.Source, target, volume.Limits)
	}
	copied, err := intime.Call(ctx, start, (*filesync.Copy).Close)
	if err != nil {
		return "", err
	}
	c.later(copied.CloseIn)
	if v.Back {
		c.noteResult(copied)
	}
	return target, nil
}

// plugVolume mounts a disk in the guest for the container's lifetime. Afterwards
// another pod may have the disk.
func (c *Container) plugVolume(ctx context.Context, v volume.Volume) (string, error) {
	used, err := c.useDisk(ctx, disk.Source{Path: v.Disk.Path, ReadOnly: v.Disk.ReadOnly})
	if err != nil {
		return "", err
	}
	at := c.pod.volumes.newFiles()
	mount := diskStorage(v.Disk, used, at)
	mount.FsGroup = c.groupFor(v)
	c.add(mount, fmt.Sprintf("volume %s on %s", v.Source, v.Disk.Path))
	forget := c.pod.assigned.note(&assigned{volume: v, disk: used, target: at})
	c.later(func(context.Context) error {
		forget()
		return nil
	})
	return at, nil
}

func diskStorage(d volume.Disk, used *disk.Disk, target string) *api.Storage {
	s := &api.Storage{
		Driver: used.Driver, Source: used.Place, Target: target,
		Fstype: d.Fstype, Options: d.Options,
	}
	if d.ReadOnly {
		s.Options = append(slices.Clone(s.Options), "ro")
	}
	return s
}

// partOfVolume returns where in the guest the container finds its part of a
// volume (a subPath). The guest makes the part if it is missing, and mounts it
// where no other container can replace it.
func (c *Container) partOfVolume(v volume.Volume, volumeAt string) string {
	if v.Sub == "" {
		return volumeAt
	}
	target, of := c.pod.volumes.newTarget(), v.SubMode
	c.add(&api.Storage{
		Driver: "bind", Source: path.Join(volumeAt, v.Sub), Target: target,
		Options: []string{fmt.Sprintf("mode=%o", of.Mode), fmt.Sprintf("uid=%d", of.UID), fmt.Sprintf("gid=%d", of.GID)},
	}, "volume "+v.Source)
	return target
}

// volume makes a volume that the pod's containers share, unless it exists, and
// returns its path in the guest.
func (p *Pod) volume(ctx context.Context, v volume.Volume) (string, error) {
	return p.volumes.once(ctx, v.Key, func(target string) error { return p.makeVolume(ctx, v, target) })
}

func (p *Pod) makeVolume(ctx context.Context, v volume.Volume, target string) error {
	switch v.Kind {
	case volume.Memory:
		return p.guest.AddStorages(ctx, []*api.Storage{{Driver: "tmpfs", Target: target, Options: v.Options}})
	case volume.Hugepages:
		return p.addHugepages(ctx, target, v.Options)
	default:
		return p.makeImage(ctx, v, target)
	}
}

// makeImage makes and mounts a disk whose file is in the volume's directory.
func (p *Pod) makeImage(ctx context.Context, v volume.Volume, target string) error {
	if err := intime.Do(ctx, func() error { return volume.MakeImage(v.Disk) }); err != nil {
		return err
	}
	used, err := p.disks.Use(ctx, disk.Source{Path: v.Disk.Path})
	if err != nil {
		return err
	}
	if err := p.guest.AddStorages(ctx, []*api.Storage{diskStorage(v.Disk, used, target)}); err != nil {
		return errors.Join(err, p.disks.Release(context.WithoutCancel(ctx), used))
	}
	return nil
}
