package rootfs

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
)

// Plan is a root file system that the guest makes of disks.
type Plan struct {
	// Disks are mounted in this order.
	Disks []Disk
	// Overlay combines them; nil when the first disk alone is the root.
	Overlay *Overlay
	// Subdir is the directory of the root within what was mounted last; empty
	// for all of it.
	Subdir string
}

// Disk is one file system.
type Disk struct {
	// Path is a file or block device of the host.
	Path     string
	ReadOnly bool
	Fstype   string
	// Options are the mount(8) options for the guest's kernel.
	Options []string
	// Devices are the other files of which the file system consists (erofs).
	// They are read-only.
	Devices []string
}

// Overlay combines disks.
type Overlay struct {
	// Lower are indexes into Plan.Disks, the topmost first. If empty, the lower
	// layer is an empty directory.
	Lower []int
	// Upper is the index of the disk with UpperDir and WorkDir, paths in it; -1
	// makes the overlay read-only.
	Upper             int
	UpperDir, WorkDir string
	// Options are the overlay's other options.
	Options []string
}

// diskTypes are the file systems that a guest can mount from a disk.
var diskTypes = []string{"ext2", "ext3", "ext4", "xfs", "erofs"}

// Parse reads an engine's mounts. It returns nil if they are not disks, or if
// the guest could not make the root of them: then the host mounts them
// (MountHost). It fails with errdefs.ErrInvalidArgument for an invalid
// template, and with errdefs.ErrNotImplemented for a layer that is to be read
// through dm-verity, which neither host nor guest does.
func Parse(mounts []*types.Mount) (*Plan, error) {
	all, err := understand(mounts)
	switch {
	case err != nil:
		return nil, err
	case len(mounts) == 0 || slices.ContainsFunc(mounts, func(m *types.Mount) bool { return m.GetTarget() != "" }):
		return nil, nil //nolint:nilnil // no plan is an answer
	}
	last := len(mounts) - 1
	if !isTemplate(mounts[last]) {
		return single(mounts), nil
	}
	disks := make([]Disk, 0, last)
	for _, m := range mounts[:last] {
		d, ok := diskOf(m)
		if !ok {
			return nil, nil //nolint:nilnil // as above
		}
		disks = append(disks, d)
	}
	return combine(disks, all[last]), nil
}

// understand fills in the templates, with marks for the mount points of other
// mounts, and refuses what cannot be mounted.
func understand(mounts []*types.Mount) ([]filled, error) {
	all := make([]filled, 0, len(mounts))
	for i, m := range mounts {
		for _, text := range append([]string{m.GetType(), m.GetSource()}, m.GetOptions()...) {
			if strings.Contains(text, markByte) {
				return nil, fmt.Errorf("mount %d of the root file system: %.200q has a null byte: %w", i, text, errdefs.ErrInvalidArgument)
			}
			if strings.HasPrefix(text, dmverity) {
				return nil, fmt.Errorf("mount %d of the root file system: %s wants dm-verity, which a guest's disk does not have (disable_block_device_use leaves it to the engine): %w",
					i, m.GetSource(), errdefs.ErrNotImplemented)
			}
		}
		f, err := fill(mounts, i, mark)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// single returns the plan for a single mount that is a disk, or nil.
func single(mounts []*types.Mount) *Plan {
	if len(mounts) != 1 {
		return nil
	}
	d, ok := diskOf(mounts[0])
	if !ok {
		return nil
	}
	return &Plan{Disks: []Disk{d}}
}

// diskOf reads a mount as a disk. It returns false if an option requires the
// host to mount it.
func diskOf(m *types.Mount) (Disk, bool) {
	d := Disk{Path: m.GetSource(), Fstype: m.GetType(), ReadOnly: m.GetType() == "erofs"}
	if !slices.Contains(diskTypes, d.Fstype) || !path.IsAbs(d.Path) {
		return d, false
	}
	for _, o := range m.GetOptions() {
		device, isDevice := strings.CutPrefix(o, "device=")
		switch {
		case hostOnly(o) || isDevice && !path.IsAbs(device):
			return d, false
		case isDevice:
			d.Devices = append(d.Devices, device)
		case o == "ro":
			d.ReadOnly = true
		case o == "rw":
			d.ReadOnly = d.Fstype == "erofs"
		case !ofHost(o):
			d.Options = append(d.Options, o)
		}
	}
	if d.ReadOnly {
		d.Options = append(d.Options, "ro")
	}
	return d, true
}

// hostOnly reports whether an option requests something other than mounting a
// whole disk, or is an engine's that is not known here.
func hostOnly(option string) bool {
	key, _, _ := strings.Cut(option, "=")
	return strings.HasPrefix(key, engineWords) || slices.Contains([]string{"bind", "rbind", "remount", "move", "uidmap", "gidmap", "offset", "sizelimit"}, key)
}

// ofHost reports whether an option has no use in the guest: a loop device,
// which it does not need, and options for programs on the host (mount(8)).
func ofHost(option string) bool {
	key, _, _ := strings.Cut(option, "=")
	return key == "loop" || key == "direct-io" || strings.HasPrefix(option, "x-") || strings.HasPrefix(option, "X-")
}
