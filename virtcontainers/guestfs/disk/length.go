package disk

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// sector is the unit of a disk's length, in bytes.
const sector = 512

// length returns the length in bytes, and opens nothing. For a file it asks the file
// system, which may hang: a network file system may remember an older length, and a disk
// that is grown to less than its file has would be cut off (hypervisor.DiskGrower).
func (f *found) length() (uint64, error) {
	if f.key.device {
		return deviceLength(f.key.dev)
	}
	var stx unix.Statx_t
	if err := unix.Statx(f.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_SIZE, &stx); err != nil {
		return 0, fmt.Errorf("find its length: %w", os.NewSyscallError("statx", err))
	}
	return stx.Size, nil
}

// deviceLength returns the length of a block device in bytes, from sysfs, where its file
// "size" counts sectors of 512 bytes (Documentation/ABI/stable/sysfs-block).
func deviceLength(dev uint64) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/size", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return 0, fmt.Errorf("find its length: %w", err)
	}
	sectors, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 54) // as bytes it fits 63 bits
	if err != nil {
		return 0, fmt.Errorf("find its length: %w", err)
	}
	return sectors * sector, nil
}

// checkLength refuses an empty disk, and one whose end would be cut off
// (hypervisor.Disk, LogicalBlockSize). The VMM pads the last 512 bytes.
func checkLength(length uint64, block uint32) error {
	if length == 0 {
		return fmt.Errorf("it is empty, want a disk's content: %w", errdefs.ErrInvalidArgument)
	}
	if sectors := (length + sector - 1) / sector; block > sector && sectors*sector%uint64(block) != 0 {
		return fmt.Errorf("its length, %d bytes, is not a multiple of the logical sector size, %d bytes: set a smaller block_device_logical_sector_size: %w", length, block, errdefs.ErrInvalidArgument)
	}
	return nil
}

// unit returns the size in bytes of the guest's sectors.
func (b blockSizes) unit() uint64 { return uint64(max(b.logical, sector)) }

// whole returns the length of a block device without what is less than a sector.
func (b blockSizes) whole(length uint64) uint64 { return length - length%b.unit() }
