package virtcontainers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
	"github.com/katabox/katabox/virtcontainers/guestfs/filesync"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
)

// DefaultShmBytes is the size of a pod's shared memory when the engine has
// none for it: that of Docker and Kubernetes.
const DefaultShmBytes = 64 << 20

// podStorages is what the guest mounts before its first container.
func (s *Sandbox) podStorages() []*api.Storage {
	var list []*api.Storage
	if s.share != nil {
		list = append(list, &api.Storage{Driver: "virtio-fs", Source: api.ShareTag, Target: api.GuestSharedDir})
	}
	shm := "size=" + strconv.FormatUint(cmp.Or(s.opts.ShmBytes, DefaultShmBytes), 10)
	return append(list, &api.Storage{Driver: "tmpfs", Target: api.GuestShmDir, Options: []string{"nosuid", "nodev", "noexec", "mode=1777", shm}})
}

// podVolumes are the volumes that the pod's containers share and that are made
// once, in the guest. They stay until the sandbox ends.
type podVolumes struct {
	mu   sync.Mutex // guards what follows
	made map[string]*podVolume
	// next numbers places in the guest.
	next int
}

// podVolume is one of them. target and err are written before ready is closed.
type podVolume struct {
	ready  chan struct{}
	target string
	err    error
}

func newPodVolumes() podVolumes { return podVolumes{made: map[string]*podVolume{}} }

// newTarget is a place in the guest to mount something.
func (p *podVolumes) newTarget() string { return path.Join(api.GuestStorageDir, p.number()) }

// newFiles is a place in the guest to copy something.
func (p *podVolumes) newFiles() string { return path.Join(api.GuestFilesDir, p.number()) }

func (p *podVolumes) number() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	return strconv.Itoa(p.next)
}

// claim finds the volume of that key; mine says that the caller must make it
// and then settle it.
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

// settle tells who waits for the volume what became of it. One that could not
// be made may be tried again.
func (p *podVolumes) settle(key string, v *podVolume, target string, err error) {
	v.target, v.err = target, err
	if err != nil {
		p.mu.Lock()
		delete(p.made, key)
		p.mu.Unlock()
	}
	close(v.ready)
}

// isVolume tells a volume of the kubelet's from what an engine mounts itself.
func (s *Sandbox) isVolume(source string) bool {
	return volume.IsVolume(s.opts.Config.Runtime.KubeletDir, source)
}

func (s *Sandbox) volumeOptions() volume.Options {
	r := s.opts.Config.Runtime
	return volume.Options{
		Share: s.share != nil, KubeletDir: r.KubeletDir,
		ImageDirs: r.GuestEmptyDir || r.EmptyDirMode == config.EmptyDirBlock,
	}
}

// diskOptions are what all of the machine's disks have in common.
func (s *Sandbox) diskOptions() disk.Options {
	h := s.opts.Config.Hypervisor
	opts := disk.Options{
		Bus: hypervisor.DiskBus(h.BlockDriver), AIO: hypervisor.DiskAIO(h.BlockAIO),
		LogicalBlockSize: h.BlockLogicalSector, PhysicalBlockSize: h.BlockPhysicalSector,
	}
	if h.BlockCache.Set {
		opts.Cache = hypervisor.DiskCache{Direct: h.BlockCache.Direct, NoFlush: h.BlockCache.NoFlush}
	}
	return opts
}

// addVolume brings a volume that is not in the share into the guest, and says
// where it is there.
func (s *Sandbox) addVolume(ctx context.Context, c *Container, v volume.Volume) (string, error) {
	switch v.Kind {
	case volume.Copied:
		return s.copyVolume(ctx, c, v)
	case volume.Memory, volume.Hugepages, volume.Image:
		at, err := s.podVolume(ctx, v)
		if err != nil {
			return "", err
		}
		return s.partOfVolume(c, v, at), nil
	case volume.Direct:
		at, err := s.plugVolume(ctx, c, v)
		if err != nil {
			return "", err
		}
		return s.partOfVolume(c, v, at), nil
	case volume.Socket:
		return s.forwardSocket(ctx, c, v)
	case volume.Shared:
	}
	return "", fmt.Errorf("no way to bring in a volume of kind %d", v.Kind)
}

// copyVolume copies a volume, and what changes in it, while the container is
// there.
func (s *Sandbox) copyVolume(ctx context.Context, c *Container, v volume.Volume) (string, error) {
	target := s.volumes.newFiles()
	c.files.later(func(ctx context.Context) error {
		if s.gone() {
			return nil
		}
		return s.ignoreGone(s.client.ChangeFiles(ctx, []*api.FileChange{{Path: target, Change: &api.FileChange_Remove{Remove: &api.Remove{}}}}))
	})
	copied, err := filesync.Start(ctx, s.client, v.Source, target, volume.Limits)
	if err != nil {
		return "", err
	}
	c.files.later(func(context.Context) error {
		copied.Close()
		return nil
	})
	return target, nil
}

// plugVolume mounts a disk in the guest while the container is there. It may be
// another pod's next.
func (s *Sandbox) plugVolume(ctx context.Context, c *Container, v volume.Volume) (string, error) {
	used, err := s.useDisk(ctx, c, disk.Source{Path: v.Disk.Path, ReadOnly: v.Disk.ReadOnly})
	if err != nil {
		return "", err
	}
	at := s.volumes.newFiles()
	c.files.add(diskStorage(v.Disk, used, at), fmt.Sprintf("volume %s on %s", v.Source, v.Disk.Path))
	return at, nil
}

func diskStorage(d volume.Disk, used *disk.Disk, target string) *api.Storage {
	s := &api.Storage{
		Driver: used.Driver, Source: used.Place, Target: target,
		Fstype: d.Fstype, Options: d.Options, FsGroup: d.Group,
	}
	if d.ReadOnly {
		s.Options = append(slices.Clone(s.Options), "ro")
	}
	return s
}

// partOfVolume has the part of a volume that the container is to have made, if
// it is missing, and mounted where no other container can put something else in
// its place.
func (s *Sandbox) partOfVolume(c *Container, v volume.Volume, volumeAt string) string {
	if v.Sub == "" {
		return volumeAt
	}
	target, of := s.volumes.newTarget(), v.SubMode
	c.files.add(&api.Storage{
		Driver: "bind", Source: path.Join(volumeAt, v.Sub), Target: target,
		Options: []string{fmt.Sprintf("mode=%o", of.Mode), fmt.Sprintf("uid=%d", of.UID), fmt.Sprintf("gid=%d", of.GID)},
	}, "volume "+v.Source)
	return target
}

// pageSize is how the OCI runtime spec writes the size of a huge page
// (config-linux.md, hugepageLimits).
var pageSize = regexp.MustCompile(`^[1-9][0-9]{0,9}[KMG]B$`)

// reserveHugepages has the guest's kernel keep as many huge pages as the
// container may use, for as long as it is there: the kernel has none by
// itself.
func (s *Sandbox) reserveHugepages(c *Container, opts ContainerOptions) error {
	r := opts.Bundle.Spec.Linux.Resources
	if r == nil {
		return nil
	}
	for _, limit := range r.HugepageLimits {
		if limit.Limit == 0 || limit.Limit > math.MaxInt64 {
			continue // none, or no limit
		}
		if !pageSize.MatchString(limit.Pagesize) {
			return fmt.Errorf("linux.resources.hugepageLimits: the page size is %q, want one such as 2MB: %w", limit.Pagesize, errdefs.ErrInvalidArgument)
		}
		c.files.add(&api.Storage{
			Driver: "hugetlbfs", Target: s.volumes.newTarget(),
			Options: []string{"pagesize=" + strings.TrimSuffix(limit.Pagesize, "B"), fmt.Sprintf("size=%d", limit.Limit)},
		}, "hugepageLimits of "+limit.Pagesize)
	}
	return nil
}

// podVolume makes a volume that the pod's containers share, if it is not there,
// and says where it is.
func (s *Sandbox) podVolume(ctx context.Context, v volume.Volume) (string, error) {
	made, mine := s.volumes.claim(v.Key)
	if mine {
		// Its place is where files can be changed: for directories in it.
		target := s.volumes.newFiles()
		s.volumes.settle(v.Key, made, target, s.makeVolume(ctx, v, target))
	}
	select {
	case <-made.ready:
	case <-ctx.Done():
		return "", fmt.Errorf("await another container that makes it: %w", context.Cause(ctx))
	}
	if made.err != nil {
		return "", made.err
	}
	return made.target, nil
}

func (s *Sandbox) makeVolume(ctx context.Context, v volume.Volume, target string) error {
	switch v.Kind {
	case volume.Memory:
		return s.client.AddStorages(ctx, []*api.Storage{{Driver: "tmpfs", Target: target, Options: v.Options}})
	case volume.Hugepages:
		return s.client.AddStorages(ctx, []*api.Storage{{Driver: "hugetlbfs", Target: target, Options: v.Options}})
	default:
		return s.makeImage(ctx, v, target)
	}
}

// makeImage mounts a disk that is a file in the volume's directory.
func (s *Sandbox) makeImage(ctx context.Context, v volume.Volume, target string) error {
	if err := volume.MakeImage(v.Disk); err != nil {
		return err
	}
	used, err := s.disks.Use(ctx, disk.Source{Path: v.Disk.Path})
	if err != nil {
		return err
	}
	if err := s.client.AddStorages(ctx, []*api.Storage{diskStorage(v.Disk, used, target)}); err != nil {
		return errors.Join(err, s.disks.Release(context.WithoutCancel(ctx), used))
	}
	return nil
}
