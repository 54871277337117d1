package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/pci"
)

// Disk is a block device in the guest.
type Disk struct {
	// Node is its device node in the guest.
	Node         string
	Major, Minor uint32
}

// FindDisk finds a disk by the driver and source of an api.Device or
// api.Storage, and loads its driver. It blocks until the disk can be opened,
// pci.Timeout at most: a disk that does not appear is an errdefs.ErrNotFound.
func (m *Mounter) FindDisk(ctx context.Context, driver, source string) (Disk, error) {
	place, err := parsePlace(driver, source)
	if err != nil {
		return Disk{}, err
	}
	if err := m.loadDrivers(place.drivers()); err != nil {
		return Disk{}, err
	}
	ctx, cancel := pci.WithTimeout(ctx)
	defer cancel()
	disk, err := pci.Await(ctx, func() (Disk, error) { return m.diskAt(place) })
	if err != nil {
		return Disk{}, fmt.Errorf("find %s disk %s: %w", driver, source, err)
	}
	return disk, nil
}

// kernelDriver is a kernel driver: the module that may contain it, and the
// directory below sysfs that exists once it is loaded or built in.
type kernelDriver struct{ module, dir string }

func (m *Mounter) loadDrivers(drivers []kernelDriver) error {
	for _, d := range drivers {
		if _, err := os.Stat(filepath.Join(m.sys, d.dir)); err == nil {
			continue
		}
		if err := m.Modules.Demand(d.module); err != nil {
			return err
		}
	}
	return nil
}

// diskAt looks for a disk. It returns errdefs.ErrNotFound until the disk can be
// opened: the kernel shows its number before its node exists, and the node
// before the disk is ready (block/genhd.c, device_add_disk).
func (m *Mounter) diskAt(place diskPlace) (Disk, error) {
	dir, err := pci.Device(filepath.Join(m.sys, pci.Root), place.path)
	if err != nil {
		return Disk{}, err
	}
	files, err := filepath.Glob(filepath.Join(dir, place.pattern(), "block", "*", "dev"))
	if err != nil {
		return Disk{}, err
	}
	if len(files) != 1 {
		return Disk{}, fmt.Errorf("%s has %d disks at %s, want 1: %w", filepath.Base(dir), len(files), place, errdefs.ErrNotFound)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return Disk{}, fmt.Errorf("read disk's number: %w (%w)", err, errdefs.ErrNotFound)
	}
	disk := Disk{Node: filepath.Join(m.dev, filepath.Base(filepath.Dir(files[0])))}
	if _, err := fmt.Sscanf(strings.TrimSpace(string(text)), "%d:%d", &disk.Major, &disk.Minor); err != nil {
		return Disk{}, fmt.Errorf("read disk's number of %s: %q: %w", disk.Node, text, err)
	}
	if err := m.kernel.openDisk(disk, 0); err != nil {
		return Disk{}, fmt.Errorf("%w (%w)", err, errdefs.ErrNotFound)
	}
	return disk, nil
}

// openDisk opens and closes a disk. It returns unix.ENODEV if the node is
// missing or another device's.
func openDisk(disk Disk, flags int) error {
	fd, err := unix.Open(disk.Node, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW|flags, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", disk.Node, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != unix.Mkdev(disk.Major, disk.Minor)) {
		err = unix.ENODEV
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("inspect %s for device %d:%d: %w", disk.Node, disk.Major, disk.Minor, err)
	}
	return nil
}
