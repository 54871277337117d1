package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// Char is a character device in the guest.
type Char struct {
	// Node is its device node in the guest.
	Node         string
	Major, Minor uint32
	Common       bool // see api.CharDevice
}

// FindChar finds a character device of api.CharDevices by its name. With node the device
// has its node in the guest: the module that provides it is loaded. Without, the module
// may be left to the kernel, which requests it when a container opens the device. A device
// that this kernel lacks is an errdefs.ErrNotFound, a name that is not listed an
// ErrInvalidArgument.
func (m *Mounter) FindChar(name string, node bool) (Char, error) {
	i := slices.IndexFunc(api.CharDevices, func(d api.CharDevice) bool { return d.Name == name })
	if i < 0 {
		return Char{}, fmt.Errorf("character device %.100q is not for containers: %w", name, errdefs.ErrInvalidArgument)
	}
	d := api.CharDevices[i]
	c := Char{Node: filepath.Join(m.dev, d.Name), Common: d.Common}
	err := c.stat()
	if errors.Is(err, fs.ErrNotExist) && d.Module != "" {
		if !node && m.Modules.loadedByOpen(d) {
			c.Major, c.Minor = uint32(d.Major), uint32(d.Minor)
			return c, nil
		}
		if err = m.Modules.Demand(d.Module); err == nil {
			err = c.stat() // devtmpfs has the node before the module is loaded (drivers/base/devtmpfs.c)
		}
	}
	if err != nil {
		return Char{}, fmt.Errorf("the guest has no character device %s: %w (%w)", d.Name, err, errdefs.ErrNotFound)
	}
	return c, nil
}

// loadedByOpen reports whether the kernel requests the device's module when a node with
// its number is opened: it does so by this alias (drivers/char/misc.c, misc_open;
// fs/char_dev.c, base_probe).
func (m *Modules) loadedByOpen(d api.CharDevice) bool {
	alias := fmt.Sprintf("char-major-%d-%d", d.Major, d.Minor)
	return slices.Contains(m.list.Lookup(alias), m.list.Find(d.Module))
}

// stat reads the device's number from its node.
func (c *Char) stat() error {
	var st unix.Stat_t
	if err := unix.Lstat(c.Node, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: c.Node, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fmt.Errorf("%s is not a character device", c.Node)
	}
	c.Major, c.Minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
	return nil
}
