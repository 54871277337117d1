package guest

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// loopDriver is the driver of loop devices.
var loopDriver = kernelDriver{module: "loop", dir: "module/loop"}

// FindLoop finds one of the guest's first api.LoopDevices loop devices by its
// number, and loads their driver. One that this guest lacks is an
// errdefs.ErrNotFound, any other number an ErrInvalidArgument.
func (m *Mounter) FindLoop(number string) (Disk, error) {
	n, err := strconv.ParseUint(number, 10, 8)
	if err != nil || n >= api.LoopDevices {
		return Disk{}, fmt.Errorf("loop device %.40q, want a number below %d: %w", number, api.LoopDevices, errdefs.ErrInvalidArgument)
	}
	if err := m.loadDrivers([]kernelDriver{loopDriver}); err != nil {
		return Disk{}, fmt.Errorf("the guest has no loop devices: %w (%w)", err, errdefs.ErrNotFound)
	}
	d := Disk{Node: filepath.Join(m.dev, fmt.Sprintf("loop%d", n))}
	var st unix.Stat_t
	if err := unix.Lstat(d.Node, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Disk{}, fmt.Errorf("find loop device %s: %w", d.Node, errdefs.ErrNotFound)
	}
	d.Major, d.Minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
	return d, nil
}
