package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// drivers are what the tests' devices need, of the modules in the image; what
// it does not have is left out.
var drivers = []string{
	"virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
	"failover", "net_failover", "virtio_net",
	"virtio_blk",
	"scsi_common", "scsi_mod", "virtio_scsi", "sd_mod",
	"virtio_mem",
	"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport",
}

// loadModules loads the drivers in the order of the image's list: a module a
// line, with when it is for, its name and its path.
func loadModules(list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 3 || !slices.Contains(drivers, field[1]) {
			continue
		}
		if err := load(field[2]); err != nil {
			return fmt.Errorf("load %s: %w", field[1], err)
		}
	}
	return lines.Err()
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}
