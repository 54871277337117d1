package guestfs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
)

// mounter is a Guest with file systems on disks, by their targets.
type mounter struct {
	files
	mounted  map[string]guest.VolumeStats
	growFail error
}

func (m *mounter) VolumeStats(_ context.Context, target string) (guest.VolumeStats, error) {
	stats, ok := m.mounted[target]
	if !ok {
		return stats, fmt.Errorf("no disk is mounted at %s: %w", target, errdefs.ErrNotFound)
	}
	return stats, nil
}

func (m *mounter) GrowVolume(_ context.Context, target string, bytes uint64) error {
	stats := m.mounted[target]
	stats.Bytes.Total = bytes
	m.mounted[target] = stats
	return m.growFail
}

const assignedPath = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"

// plug gives the container a direct volume with a new disk, which the guest has
// mounted.
func plug(t *testing.T, c *Container, m *mounter, fstype string, readOnly bool) (device, target string) {
	t.Helper()
	v := volume.Volume{
		Kind: volume.Direct, Key: "/elsewhere" + assignedPath, Assigned: assignedPath,
		Disk: volume.Disk{Path: file(t, "volume"), Fstype: fstype, ReadOnly: readOnly},
	}
	target, err := c.plugVolume(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	m.mounted[target] = guest.VolumeStats{Bytes: guest.Usage{Total: 4096}, ReadOnly: readOnly}
	return v.Disk.Path, target
}

func volumePod(t *testing.T) (*Pod, *Container, *mounter, func(id string) uint64) {
	t.Helper()
	p, vm, agent := newPod(t)
	p.opts.Config.Hypervisor.BlockDriver = string(hypervisor.VirtioBlk)
	m := &mounter{files: agent, mounted: map[string]guest.VolumeStats{}}
	p.guest = m
	return p, p.Container(request(t)), m, vm.Grown
}

// A volume is found by what it is called anywhere, and as long as a container
// has it.
func TestAssignedVolume(t *testing.T) {
	p, c, m, grown := volumePod(t)
	if _, err := p.VolumeStats(t.Context(), assignedPath); !errdefs.IsNotFound(err) {
		t.Errorf("stats of what no container has: %v", err)
	}
	device, target := plug(t, c, m, "ext4", false)
	for i, path := range []string{assignedPath, assignedPath + "/", "/elsewhere" + assignedPath, device} {
		want := uint64(8192 * (i + 1))
		if size, err := p.GrowVolume(t.Context(), path, want); err != nil || size != want || grown("disk-1") != want {
			t.Errorf("grow %s: %d, %v; the machine was asked for %d, want %d", path, size, err, grown("disk-1"), want)
		}
		if v, err := p.VolumeStats(t.Context(), path); err != nil || v.Bytes.Total != want || v.Failed {
			t.Errorf("stats of %s: %+v, %v", path, v, err)
		}
	}
	delete(m.mounted, target)
	if _, err := p.GrowVolume(t.Context(), assignedPath, 1<<20); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), assignedPath) {
		t.Errorf("grow what the guest has not mounted: %v", err)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.VolumeStats(t.Context(), assignedPath); !errdefs.IsNotFound(err) || strings.Contains(err.Error(), target) {
		t.Errorf("stats of what a container had: %v", err)
	}
}

// What cannot grow is refused before its disk has changed.
func TestVolumeThatCannotGrow(t *testing.T) {
	for _, test := range []struct {
		name, fstype, want string
		readOnly, failed   bool
		is                 func(error) bool
	}{
		{name: "btrfs", fstype: "btrfs", want: "its file system is btrfs, want ext4 or xfs", is: errdefs.IsNotImplemented},
		{name: "read-only", fstype: "ext4", readOnly: true, want: "it is read-only", is: errdefs.IsFailedPrecondition},
		{name: "failed", fstype: "xfs", failed: true, want: "it is read-only", is: errdefs.IsFailedPrecondition},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, c, m, grown := volumePod(t)
			_, target := plug(t, c, m, test.fstype, test.readOnly)
			if test.failed {
				m.mounted[target] = guest.VolumeStats{ReadOnly: true}
			}
			if _, err := p.GrowVolume(t.Context(), assignedPath, 1<<20); !test.is(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if v, err := p.VolumeStats(t.Context(), assignedPath); err != nil || v.Failed != test.failed {
				t.Errorf("stats: %+v, %v", v, err)
			}
			if grown("disk-1") != 0 {
				t.Errorf("the disk was grown to %d", grown("disk-1"))
			}
		})
	}
}

// Of a volume that one container writes and one reads, the writer's mount
// grows.
func TestWriterGrows(t *testing.T) {
	p, c, m, _ := volumePod(t)
	plug(t, c, m, "ext4", true)
	_, writer := plug(t, c, m, "ext4", false)
	if size, err := p.GrowVolume(t.Context(), assignedPath, 1<<20); err != nil || m.mounted[writer].Bytes.Total != size {
		t.Errorf("%d, %v: %v", size, err, m.mounted)
	}
	m.growFail = errors.New("no room to grow")
	if _, err := p.GrowVolume(t.Context(), assignedPath, 1<<21); err == nil || !strings.Contains(err.Error(), "no room to grow") {
		t.Error(err)
	}
}
