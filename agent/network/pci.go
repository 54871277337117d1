package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// pciRoot is the directory of the machine's root bus: q35 has one domain
	// and its root bus is 0.
	pciRoot = "/sys/devices/pci0000:00"
	// nicTimeout bounds the wait for NICs that are not there yet. A NIC that
	// is plugged into a running guest takes about 0.1 s.
	nicTimeout = 10 * time.Second
	// nicPoll is the time between two looks.
	nicPoll = 10 * time.Millisecond
)

// errLate is the end of the wait.
var errLate = fmt.Errorf("it did not come within %v", nicTimeout)

// pciFunction is a device's directory: domain, bus, slot, function
// (Documentation/ABI/testing/sysfs-bus-pci).
var pciFunction = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:([0-9a-f]{2})\.0$`)

// find returns the kernel's number of each NIC, in order. It waits for those
// that are not there yet.
func (n *Network) find(ctx context.Context, nics []nic) ([]int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nicTimeout, errLate)
	defer cancel()
	indexes := make([]int, 0, len(nics))
	for _, nic := range nics {
		index, err := n.await(ctx, nic.path)
		if err != nil {
			return nil, fmt.Errorf("find interface %s at PCI path %s: %w", nic.name, nic.path, err)
		}
		indexes = append(indexes, index)
	}
	return indexes, nil
}

// await looks for one NIC until it is there or ctx is done.
func (n *Network) await(ctx context.Context, path string) (int, error) {
	poll := time.NewTicker(nicPoll)
	defer poll.Stop()
	for {
		index, err := nicAt(n.pci, path)
		if err == nil || !errors.Is(err, errdefs.ErrNotFound) {
			return index, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// nicAt finds the network interface of the virtio device at a PCI path below
// the root bus's directory. A part that is missing is an
// errdefs.ErrNotFound that says which.
func nicAt(root, path string) (index int, err error) {
	dir := root
	for slot := range strings.SplitSeq(path, "/") {
		if dir, err = inSlot(dir, slot); err != nil {
			return 0, err
		}
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

// readIndex reads an interface's number. A file that is gone by now is as one
// that was not there yet.
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

// inSlot finds the device in a slot of the bus that is behind the bridge with
// the directory dir.
func inSlot(dir, slot string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("look at PCI bus: %w", err)
	}
	for _, entry := range entries {
		if m := pciFunction.FindStringSubmatch(entry.Name()); m != nil && m[1] == slot {
			return filepath.Join(dir, entry.Name()), nil
		}
	}
	return "", fmt.Errorf("no device in slot %s behind %s: %w", slot, filepath.Base(dir), errdefs.ErrNotFound)
}
