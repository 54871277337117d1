package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// blockSizes are a disk's sector sizes in bytes, as the guest is to see them; 0 is the
// VMM's default, which is 512.
type blockSizes struct{ logical, physical uint32 }

const (
	// maxLogical is the largest logical size of a guest's disk: a page.
	maxLogical = 4096
	// maxPhysical is hypervisor.Disk's.
	maxPhysical = 64 << 10
)

// of returns the sizes of a disk: those wanted, and for 0 those of the block device; a
// file has none. QEMU asks for them itself, but uses the answer only for DASDs
// (block/file-posix.c, hdev_probe_blocksizes). A partition table or a file system that was
// made with sectors of 4096 bytes is not readable with 512, and the other way round.
func (want blockSizes) of(file *os.File, device bool) (blockSizes, error) {
	if !device {
		return want, nil
	}
	logical, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET)
	if err != nil {
		return want, fmt.Errorf("find its logical sector size: %w", err)
	}
	physical, err := unix.IoctlGetUint32(int(file.Fd()), unix.BLKPBSZGET)
	if err != nil {
		return want, fmt.Errorf("find its physical sector size: %w", err)
	}
	if want.logical == 0 && logical <= maxLogical {
		want.logical = uint32(logical)
	}
	if want.physical == 0 && physical&(physical-1) == 0 {
		want.physical = min(physical, maxPhysical)
	}
	want.physical = max(want.physical, want.logical)
	return want, nil
}
