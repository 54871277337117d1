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

// find returns the kernel's index of each NIC, in order. It waits for those
// that do not exist yet.
func (n *Network) find(ctx context.Context, nics []nic) ([]int, error) {
	ctx, cancel := pci.WithTimeout(ctx)
	defer cancel()
	indexes := make([]int, 0, len(nics))
	for _, nic := range nics {
		index, err := pci.Await(ctx, func() (int, error) { return nicAt(n.pci, nic.path) })
		if err != nil {
			return nil, fmt.Errorf("find interface %s at PCI path %s: %w", nic.name, nic.path, err)
		}
		indexes = append(indexes, index)
	}
	return indexes, nil
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
