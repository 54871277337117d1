package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/pci"
)

// pciRoot is the directory of the machine's root bus.
const pciRoot = "/sys/" + pci.Root

// find returns the kernel's index of each NIC, in order: 0 for one that a container has
// taken. It waits for those that do not exist yet.
func (n *Network) find(ctx context.Context, nics []nic) ([]int, error) {
	ctx, cancel := pci.WithTimeout(ctx)
	defer cancel()
	indexes := make([]int, 0, len(nics))
	for _, nic := range nics {
		index, err := n.findNIC(ctx, nic.path)
		if err != nil {
			return nil, fmt.Errorf("find interface %s at PCI path %s: %w", nic.name, nic.path, err)
		}
		indexes = append(indexes, index)
	}
	return indexes, nil
}

// findNIC returns the index of the NIC at a PCI path, or 0 if a container has taken it: the
// same device had it before. One that the host has plugged anew is waited for.
func (n *Network) findNIC(ctx context.Context, path string) (int, error) {
	return pci.Await(ctx, func() (int, error) {
		index, err := nicAt(n.pci, path)
		device := n.device(path)
		switch {
		case err == nil && device != nil:
			n.own.devices[path] = device
		case errdefs.IsNotFound(err) && n.own.devices[path] != nil && os.SameFile(n.own.devices[path], device):
			return 0, nil
		}
		return index, err
	})
}

// device returns the directory of the device at a PCI path, or nil if there is none. Each
// device that is plugged gets another inode number (the kernel's fs/kernfs/dir.c counts
// them up), while virtio's numbers and the path may be those of the device before it.
func (n *Network) device(path string) os.FileInfo {
	dir, err := pci.Device(n.pci, path)
	if err != nil {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	return info
}

// nicAt finds the network interface of the virtio device at a PCI path below
// the root bus's directory. A part that is missing is an
// errdefs.ErrNotFound that says which.
func nicAt(root, path string) (index int, err error) {
	dir, err := pci.Device(root, path)
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "virtio*", "net", "*", "ifindex"))
	if err != nil {
		return 0, err
	}
	if len(files) != 1 {
		return 0, fmt.Errorf("%s has %d virtio network interfaces, want 1: %w", filepath.Base(dir), len(files), errdefs.ErrNotFound)
	}
	return readIndex(files[0])
}

// readIndex reads an interface's index. A file that has disappeared counts as
// one that did not exist yet.
func readIndex(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read interface number: %w (%w)", err, errdefs.ErrNotFound)
	}
	index, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read interface number of %s: %w", file, err)
	}
	return index, nil
}
