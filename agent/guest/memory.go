package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// memoryDir has a directory for each block of memory
// (Documentation/admin-guide/mm/memory-hotplug.rst).
const memoryDir = "devices/system/memory"

// onlineMemory brings every block of the machine's memory online and returns
// how much is online in MiB: whole blocks, of 128 MiB in a small machine, so
// that a machine whose memory does not end with a block seems to have a little
// more. A block that the kernel refuses is not counted and is in the error. On
// a kernel without memory hot-plug it returns the total memory.
func (r *Resources) onlineMemory() (inUse uint64, err error) {
	size, err := r.blockSize()
	if errors.Is(err, os.ErrNotExist) {
		return totalMemory()
	}
	if err != nil {
		return 0, err
	}
	dirs, err := filepath.Glob(filepath.Join(r.sys, memoryDir, "memory[0-9]*"))
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, dir := range dirs {
		err := setOnline(filepath.Join(dir, "state"), "offline", "online")
		switch {
		case err == nil:
			inUse += size
		case errors.Is(err, os.ErrNotExist): // It is being removed.
		default:
			errs = append(errs, fmt.Errorf("online %s: %w", filepath.Base(dir), err))
		}
	}
	return inUse / mib, errors.Join(errs...)
}

// blockSize returns the size of a block of memory, in bytes.
func (r *Resources) blockSize() (uint64, error) {
	text, err := os.ReadFile(filepath.Join(r.sys, memoryDir, "block_size_bytes"))
	if err != nil {
		return 0, fmt.Errorf("read size of memory blocks: %w", err)
	}
	size, err := strconv.ParseUint(strings.TrimSpace(string(text)), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("read size of memory blocks: %w", err)
	}
	return size, nil
}

func totalMemory() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}
	return info.Totalram * uint64(info.Unit) / mib, nil
}

// virtioMem is the device type of virtio-mem (virtio 1.2, section 5, "Device
// Types"), as the virtio bus shows it.
const virtioMem = "0x0018"

// needMemoryDriver loads virtio-mem's driver once there is such a device. Other
// kinds of memory, such as pc-dimm, need none.
func (r *Resources) needMemoryDriver() error {
	if r.memoryDriver || len(r.virtioDevices(virtioMem)) == 0 {
		return nil
	}
	// So that virtio-mem can unplug its memory: the kernel then keeps unmovable
	// data out of most of it (memory-hotplug.rst, "Online Policies"). A kernel
	// before 5.16 has no such file.
	err := writeFile(filepath.Join(r.sys, "module/memory_hotplug/parameters/online_policy"), "auto-movable")
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if loadErr := r.modules.Demand("virtio_mem"); loadErr != nil {
		return errors.Join(err, loadErr)
	}
	r.memoryDriver = true
	return err
}
