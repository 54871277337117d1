package network

import (
	"context"
	"errors"
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

// findNIC returns the index of the NIC at a PCI path, or 0 if the call before had it and a
// container has taken it: its device is there. The first time it waits all the same, for the
// driver of a NIC that the host has plugged anew.
func (n *Network) findNIC(ctx context.Context, path string) (int, error) {
	taken, before := n.own.taken[path]
	if taken {
		if index, err := nicAt(n.pci, path); err == nil {
			return index, nil
		}
		if n.plugged(path) {
			return 0, nil
		}
	}
	index, err := pci.Await(ctx, func() (int, error) { return nicAt(n.pci, path) })
	if before && errors.Is(err, pci.ErrLate) && n.plugged(path) {
		return 0, nil
	}
	return index, err
}

// plugged reports whether there is a device at a PCI path.
func (n *Network) plugged(path string) bool {
	_, err := pci.Device(n.pci, path)
	return err == nil
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
