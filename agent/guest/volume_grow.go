package guest

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// The kernel's calls that grow a mounted file system (Linux,
// include/uapi/linux/ext4.h and fs/xfs/libxfs/xfs_fs.h). They are what
// resize2fs(8) and xfs_growfs(8) make.
const (
	ext4Resize  = 0x40086610 // EXT4_IOC_RESIZE_FS
	xfsGeometry = 0x80705864 // XFS_IOC_FSGEOMETRY_V1
	xfsGrowData = 0x4010586e // XFS_IOC_FSGROWFSDATA
)

// xfsGeom is struct xfs_fsop_geom_v1 as far as it is read.
type xfsGeom struct {
	BlockSize, _, _, _, _, _, _ uint32
	// MaxPercent is how much of the file system inodes may take.
	MaxPercent uint32
	DataBlocks uint64
	_          [72]byte
}

// xfsGrowth is struct xfs_growfs_data.
type xfsGrowth struct {
	NewBlocks  uint64
	MaxPercent uint32
	_          uint32
}

// growMounted makes a file system as large as its disk, which has that many
// bytes. fd is any of its directories, magic and block are what statfs(2) says
// of it. One that is as large already is no error.
func growMounted(fd int, magic int64, block, bytes uint64) error {
	switch {
	case block == 0:
		return errors.New("the file system has blocks of no bytes")
	case magic == unix.EXT4_SUPER_MAGIC: // ext2 and ext3, too
		return growExt4(fd, bytes/block)
	case magic == unix.XFS_SUPER_MAGIC:
		return growXFS(fd, bytes)
	}
	return fmt.Errorf("a mounted file system of type %#x does not grow here, want ext4 or xfs: %w", magic, errdefs.ErrNotImplemented)
}

func growExt4(fd int, blocks uint64) error {
	err := ioctl(fd, ext4Resize, unsafe.Pointer(&blocks))
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: ext4 was made without room to grow (resize_inode or meta_bg), or the kernel cannot (%w)", err, errdefs.ErrNotImplemented)
	}
	return named("grow ext4", err)
}

func growXFS(fd int, bytes uint64) error {
	var geometry xfsGeom
	if err := ioctl(fd, xfsGeometry, unsafe.Pointer(&geometry)); err != nil {
		return named("read geometry of xfs", err)
	}
	if geometry.BlockSize == 0 {
		return errors.New("read geometry of xfs: blocks of no bytes")
	}
	growth := xfsGrowth{NewBlocks: bytes / uint64(geometry.BlockSize), MaxPercent: geometry.MaxPercent}
	if growth.NewBlocks <= geometry.DataBlocks {
		return nil
	}
	return named("grow xfs", ioctl(fd, xfsGrowData, unsafe.Pointer(&growth)))
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
