package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// mountDisk mounts the file system of a disk.
func (m *Mounter) mountDisk(ctx context.Context, s *api.Storage) error {
	if err := m.needFilesystem(s.GetFstype()); err != nil {
		return err
	}
	disks, err := m.findDisks(ctx, s)
	if err != nil {
		return err
	}
	flags, data := parseMountOptions(diskOptions(s.GetFstype(), s.GetOptions(), disks[1:]))
	if err := checkData(data); err != nil {
		return err
	}
	if err := m.use(s.GetTarget(), disks); err != nil {
		return err
	}
	err = m.mountShared(request{disks[0].Node, s.GetTarget(), s.GetFstype(), flags, data})
	if err != nil {
		m.forget(s.GetTarget())
	}
	return err
}

// maxDevices is how many additional disks a file system may have: their nodes
// must fit into the page of mount options. It is more than the layers of an
// image.
const maxDevices = 128

// findDisks finds the disk of a storage and, after it, the file system's
// additional disks.
func (m *Mounter) findDisks(ctx context.Context, s *api.Storage) ([]Disk, error) {
	switch n := len(s.GetDevices()); {
	case n > 0 && s.GetFstype() != "erofs":
		return nil, fmt.Errorf("file system %s has no further disks: %w", s.GetFstype(), errdefs.ErrInvalidArgument)
	case n > maxDevices:
		return nil, fmt.Errorf("%d further disks, want at most %d: %w", n, maxDevices, errdefs.ErrInvalidArgument)
	}
	var disks []Disk
	for _, source := range slices.Concat([]string{s.GetSource()}, s.GetDevices()) {
		disk, err := m.FindDisk(ctx, s.GetDriver(), source)
		if err != nil {
			return nil, err
		}
		disks = append(disks, disk)
	}
	return disks, nil
}

// checkData refuses options that mount(2) would truncate: it takes one page
// (fs/namespace.c, copy_mount_options).
func checkData(data string) error {
	if most := os.Getpagesize() - 1; len(data) > most {
		return fmt.Errorf("mount options have %d bytes, want at most %d: %w", len(data), most, errdefs.ErrInvalidArgument)
	}
	return nil
}

// diskOptions returns a disk's mount options: the host's, and those that its
// file system needs, which may name additional disks.
func diskOptions(fstype string, wanted []string, further []Disk) []string {
	options := slices.Clone(wanted)
	switch {
	case fstype == "xfs" && !slices.Contains(strings.Split(strings.Join(options, ","), ","), "nouuid"):
		// Snapshots of one image have the same UUID, and without this XFS
		// mounts only one of them (xfs(5)).
		options = append(options, "nouuid")
	case fstype == "erofs":
		options = append(options, "ro") // A read-only disk cannot be opened otherwise.
	}
	for _, disk := range further {
		options = append(options, "device="+disk.Node)
	}
	return options
}

// mountShared mounts a disk that may already be mounted elsewhere. All its
// mounts share one file system, which is either read-only or not: the kernel
// refuses a mount that requests the other (EBUSY: fs/super.c, get_tree_bdev).
// The disk is then mounted in its current mode, and
//
//	to read beside one that writes:  this mount alone is made read-only
//	to write beside those that read: the file system is made writable; those
//	                                 stay read-only mounts of it
func (m *Mounter) mountShared(r request) error {
	err := m.mount(r)
	if errors.Is(err, unix.EBUSY) {
		return m.mountBeside(r, err)
	}
	if (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS)) && r.flags&unix.MS_RDONLY == 0 {
		return fmt.Errorf("%w: is the disk read-only? The options have no ro", err)
	}
	return err
}

func (m *Mounter) mountBeside(r request, busy error) error {
	other := r
	other.flags ^= unix.MS_RDONLY
	if err := m.mount(other); err != nil {
		return errors.Join(busy, err)
	}
	change := r.flags | unix.MS_REMOUNT
	if r.flags&unix.MS_RDONLY != 0 {
		change |= unix.MS_BIND // The mount, not the file system.
	}
	if err := m.kernel.mount("", r.target, "", change, ""); err != nil {
		return errors.Join(busy, fmt.Errorf("change it to what is wanted: %w", err), m.kernel.unmount(r.target, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

var filesystemName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
})

// needFilesystem loads a disk's file system, unless the kernel has it.
func (m *Mounter) needFilesystem(name string) error {
	if !filesystemName().MatchString(name) {
		return fmt.Errorf("file system is %.40q, want a name such as \"ext4\": %w", name, errdefs.ErrInvalidArgument)
	}
	known, err := m.hasFilesystem(name)
	if err != nil || known {
		return err
	}
	return m.Modules.Demand(name)
}

// hasFilesystem reads /proc/filesystems (proc(5)): one per line, with "nodev"
// before those that need no disk.
func (m *Mounter) hasFilesystem(name string) (bool, error) {
	list, err := os.ReadFile(filepath.Join(m.proc, "filesystems"))
	if err != nil {
		return false, fmt.Errorf("read file systems: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[1] == name:
			return false, fmt.Errorf("file system %s is not one of a disk: %w", name, errdefs.ErrInvalidArgument)
		case len(fields) == 1 && fields[0] == name:
			return true, nil
		}
	}
	return false, nil
}

// use records that a storage uses disks.
func (m *Mounter) use(target string, disks []Disk) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if used, ok := m.disks[target]; ok && (!used.released || !slices.Equal(used.disks, disks)) {
		return fmt.Errorf("target is in use by disk %s: %w", used.disks[0].Node, errdefs.ErrAlreadyExists)
	}
	m.disks[target] = diskUse{disks: disks}
	return nil
}

func (m *Mounter) forget(target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.disks, target)
}
