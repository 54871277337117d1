package qemu

import (
	"cmp"
	"fmt"
	"os"
	"regexp"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

const (
	// maxNodeName is the longest name of a block node, in bytes (QEMU's
	// include/block/block_int-common.h, node_name[32]).
	maxNodeName = 31
	nodePrefix  = "disk-"
	// minBlock and maxBlock bound a disk's block sizes in bytes. QEMU allows up
	// to 2 MiB (hw/core/qdev-properties-system.c, MAX_BLOCK_SIZE), Linux's SCSI
	// driver up to 4 KiB as the logical size, Kata up to 64 KiB.
	minBlock, maxBlock = 512, 64 << 10
)

// serial matches a valid serial number of a disk; 20 bytes is
// VIRTIO_BLK_ID_BYTES (linux/virtio_blk.h).
var serial = regexp.MustCompile(`^[!-~]{0,20}$`)

// planDisk gives QEMU the file in a descriptor set, which is what a block node
// can be opened from without a path (qapi/misc.json, add-fd).
func planDisk(d hypervisor.Disk, set int) (plan, error) {
	if err := checkDisk(d); err != nil {
		return plan{}, err
	}
	driver, err := prepareFile(d)
	if err != nil {
		return plan{}, err
	}
	node := nodePrefix + d.ID
	p := plan{
		files: []passed{{set: set, file: d.File}},
		backend: &backend{
			add: command{"blockdev-add", map[string]any{
				"driver":    "raw",
				"node-name": node,
				"read-only": d.ReadOnly,
				"discard":   "unmap", // blocks that the guest trims are freed in the file
				"cache":     map[string]any{"direct": d.Cache.Direct, "no-flush": d.Cache.NoFlush},
				"file":      fileNode(d, driver, set),
			}},
			remove: command{blockdevDel, map[string]any{"node-name": node}},
		},
	}
	// QEMU's default, "enospc", pauses the machine when the host's file system is full
	// (qapi/block-core.json, BlockdevOnError): all containers would stop for one's write.
	props := map[string]any{"drive": node, "werror": "report", "rerror": "report"}
	for name, size := range map[string]uint32{
		"logical_block_size": d.LogicalBlockSize,
		// QEMU's default is 512 for a file, and it refuses a size below the
		// logical one (hw/block/block.c, blkconf_blocksizes).
		"physical_block_size": cmp.Or(d.PhysicalBlockSize, d.LogicalBlockSize),
	} {
		if size != 0 {
			props[name] = size
		}
	}
	if d.Serial != "" {
		props["serial"] = d.Serial
	}
	if d.Bus == hypervisor.VirtioSCSI {
		p.bus = scsiBus
		p.device = onSCSIBus(d.ID, props)
		return p, nil
	}
	props["driver"], props["disable-legacy"] = ModelBlock, "on"
	p.device = onPodBus(d.ID, props)
	return p, nil
}

func onSCSIBus(id string, props map[string]any) map[string]any {
	props["driver"], props["id"], props["bus"], props["lun"] = ModelSCSIDisk, id, scsiBusName, 0
	return props
}

// fileNode is the layer below the raw one (qapi/block-core.json,
// BlockdevOptionsFile).
func fileNode(d hypervisor.Disk, driver string, set int) map[string]any {
	node := map[string]any{
		"driver":   driver,
		"filename": fmt.Sprintf("/dev/fdset/%d", set),
		"discard":  "unmap",
	}
	if d.AIO != "" {
		node["aio"] = string(d.AIO)
	}
	return node
}

func checkDisk(d hypervisor.Disk) error {
	switch {
	case len(nodePrefix+d.ID) > maxNodeName:
		return fmt.Errorf("disk ID %q: longer than %d bytes: %w", d.ID, maxNodeName-len(nodePrefix), errdefs.ErrInvalidArgument)
	case d.File == nil:
		return fmt.Errorf("no file: %w", errdefs.ErrInvalidArgument)
	case d.Bus != hypervisor.VirtioBlk && d.Bus != hypervisor.VirtioSCSI:
		return fmt.Errorf("bus %q: neither %q nor %q: %w", d.Bus, hypervisor.VirtioBlk, hypervisor.VirtioSCSI, errdefs.ErrInvalidArgument)
	case !serial.MatchString(d.Serial):
		return fmt.Errorf("serial number %q: not of at most 20 printable ASCII bytes: %w", d.Serial, errdefs.ErrInvalidArgument)
	}
	if err := checkAIO(d); err != nil {
		return err
	}
	return checkBlocks(d.LogicalBlockSize, d.PhysicalBlockSize)
}

func checkAIO(d hypervisor.Disk) error {
	switch d.AIO {
	case "", hypervisor.AIOThreads, hypervisor.AIOUring:
	case hypervisor.AIONative:
		if !d.Cache.Direct {
			return fmt.Errorf("asynchronous I/O %q without direct cache: %w", d.AIO, errdefs.ErrInvalidArgument)
		}
	default:
		return fmt.Errorf("asynchronous I/O %q: unknown: %w", d.AIO, errdefs.ErrInvalidArgument)
	}
	return nil
}

func checkBlocks(logical, physical uint32) error {
	for _, size := range []uint32{logical, physical} {
		if size != 0 && (size < minBlock || size > maxBlock || size&(size-1) != 0) {
			return fmt.Errorf("block size %d: not a power of two within %d and %d: %w", size, minBlock, maxBlock, errdefs.ErrInvalidArgument)
		}
	}
	if physical != 0 && physical < logical {
		return fmt.Errorf("physical block size %d: below the logical one, %d: %w", physical, logical, errdefs.ErrInvalidArgument)
	}
	return nil
}

// prepareFile makes the open file acceptable to QEMU in a descriptor set, and
// returns QEMU's driver for it.
func prepareFile(d hypervisor.Disk) (driver string, err error) {
	if driver, err = fileDriver(d); err != nil || !d.Cache.Direct {
		return driver, err
	}
	if err := setDirect(d.File); err != nil {
		return "", fmt.Errorf("disk file %s: go past the page cache, which needs a file system with O_DIRECT: %w", d.File.Name(), err)
	}
	return driver, nil
}

// fileDriver returns QEMU's driver for the file. It refuses a file whose access
// mode is not exactly the disk's, which is what QEMU will look for in the set
// (monitor/fds.c, monitor_fdset_dup_fd_add).
func fileDriver(d hypervisor.Disk) (string, error) {
	mode, flags, err := statFile(d.File)
	if err != nil {
		return "", fmt.Errorf("inspect disk file %s: %w", d.File.Name(), err)
	}
	want, word := unix.O_RDWR, "for reading and writing"
	if d.ReadOnly {
		want, word = unix.O_RDONLY, "for reading only"
	}
	if flags&unix.O_ACCMODE != want {
		return "", fmt.Errorf("disk file %s: not open %s: %w", d.File.Name(), word, errdefs.ErrInvalidArgument)
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file", nil
	case unix.S_IFBLK:
		return "host_device", nil
	}
	return "", fmt.Errorf("disk file %s: neither a regular file nor a block device: %w", d.File.Name(), errdefs.ErrInvalidArgument)
}

// setDirect sets O_DIRECT on an open file. QEMU does so itself up to 9.0; since
// 9.1 it accepts a file of a set only if the flag is set (monitor/fds.c,
// monitor_fdset_dup_fd_add).
func setDirect(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var flags int
	ctlErr := raw.Control(func(fd uintptr) {
		if flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0); err == nil {
			_, err = unix.FcntlInt(fd, unix.F_SETFL, flags|unix.O_DIRECT)
		}
	})
	return cmp.Or(ctlErr, err)
}

// statFile returns the type and the flags of an open file.
func statFile(f *os.File) (mode uint32, flags int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var st unix.Stat_t
	ctlErr := raw.Control(func(fd uintptr) {
		if err = unix.Fstat(int(fd), &st); err == nil {
			flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0)
		}
	})
	if ctlErr != nil {
		return 0, 0, ctlErr
	}
	return st.Mode, flags, err
}
