package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// sysHugePages has a directory for each size of huge pages that the host knows
// (Linux, Documentation/admin-guide/mm/hugetlbpage.rst).
const sysHugePages = "/sys/kernel/mm/hugepages"

// freeHugePages checks that the host has enough huge pages of that size for the
// memory; its error is clearer than QEMU's. Another process may take them in
// between; then QEMU fails.
func freeHugePages(sys string, pageMiB, sizeMiB uint64) error {
	if pageMiB == 0 {
		return nil
	}
	dir := filepath.Join(sys, fmt.Sprintf("hugepages-%dkB", pageMiB<<10))
	counts, err := readCounts(dir, "nr_hugepages", "free_hugepages", "resv_hugepages", "nr_overcommit_hugepages", "surplus_hugepages")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("this host has no huge pages of %d MiB: %w", pageMiB, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return fmt.Errorf("count huge pages: %w", err)
	}
	total, free, reserved, overcommit, surplus := counts[0], counts[1], counts[2], counts[3], counts[4]
	free -= min(reserved, free)
	want := (sizeMiB + pageMiB - 1) / pageMiB
	if free+overcommit-min(surplus, overcommit) >= want {
		return nil
	}
	return fmt.Errorf("%d MiB of memory are %d huge pages of %d MiB, of which the host has %d free: "+
		`reserve more there: echo %d > %s/nr_hugepages: %w`, sizeMiB, want, pageMiB, free, total+want-free, dir, errdefs.ErrResourceExhausted)
}

// readCounts reads files that each contain a number.
func readCounts(dir string, names ...string) ([]uint64, error) {
	counts := make([]uint64, len(names))
	for i, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if counts[i], err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	return counts, nil
}
