package guest

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/pci"
)

// The drivers of disks in api.Storage and api.Device.
const (
	virtioBlk = "virtio-blk"
	scsi      = "scsi"
)

// The most that a virtio-scsi controller can address: one byte of target and
// 14 bits of LUN (virtio 1.2, section 5.6.6.1).
const (
	maxTarget = 255
	maxLUN    = 1<<14 - 1
)

// diskPlace is a disk's address.
type diskPlace struct {
	driver string
	// path is the PCI path of the disk or of its controller.
	path string
	// target and lun are the address at a SCSI controller.
	target, lun int
}

// scsiSource is the form of a SCSI disk's source: controller, target, LUN.
var scsiSource = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9a-f/]+):([0-9]{1,5}):([0-9]{1,5})$`)
})

// parsePlace reads a disk's source.
func parsePlace(driver, source string) (diskPlace, error) {
	place := diskPlace{driver: driver, path: source}
	switch driver {
	case virtioBlk:
		if !pci.ValidPath(source) {
			return place, fmt.Errorf("source of a %s disk is %.100q, want %s: %w", driver, source, pci.PathForm, errdefs.ErrInvalidArgument)
		}
	case scsi:
		m := scsiSource().FindStringSubmatch(source)
		if m == nil {
			return place, wrongSCSI(source)
		}
		place.path = m[1]
		place.target, _ = strconv.Atoi(m[2]) // The pattern allows only digits, few enough for an int.
		place.lun, _ = strconv.Atoi(m[3])
		if !pci.ValidPath(place.path) || place.target > maxTarget || place.lun > maxLUN {
			return place, wrongSCSI(source)
		}
	default:
		return place, fmt.Errorf("driver of a disk is %.40q, want %q or %q: %w", driver, virtioBlk, scsi, errdefs.ErrInvalidArgument)
	}
	return place, nil
}

func wrongSCSI(source string) error {
	return fmt.Errorf("source of a %s disk is %.100q, want its controller's %s, then target up to %d and LUN up to %d with colons between them: %w",
		scsi, source, pci.PathForm, maxTarget, maxLUN, errdefs.ErrInvalidArgument)
}

// drivers returns the drivers that the kernel needs to see the disk, in order.
func (p diskPlace) drivers() []kernelDriver {
	if p.driver == scsi {
		return []kernelDriver{
			{"virtio_scsi", "bus/virtio/drivers/virtio_scsi"},
			{"sd_mod", "bus/scsi/drivers/sd"},
		}
	}
	return []kernelDriver{{"virtio_blk", "bus/virtio/drivers/virtio_blk"}}
}

// pattern returns a pattern for the disk's directory below that of the PCI
// device. SCSI devices are named host:channel:target:LUN
// (drivers/scsi/scsi_sysfs.c, scsi_sysfs_device_initialize); virtio-scsi has
// channel 0 only.
func (p diskPlace) pattern() string {
	if p.driver == scsi {
		return fmt.Sprintf("virtio*/host*/target*:0:%d/*:0:%d:%d", p.target, p.target, p.lun)
	}
	return "virtio*"
}

// String describes the disk's address behind its PCI device.
func (p diskPlace) String() string {
	if p.driver == scsi {
		return fmt.Sprintf("target %d, LUN %d", p.target, p.lun)
	}
	return "its virtio device"
}
