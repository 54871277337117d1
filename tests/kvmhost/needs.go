package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/tests/harness"
)

// missing returns an error that wraps errCannot if this machine is unfit, and
// another error if something must be built first.
func missing(l harness.Layout, memoryMiB int) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: virtiofsd and containerd need root", errCannot)
	}
	for _, path := range []string{harness.DefaultQEMU, harness.DefaultVirtiofsd} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: %w: run \"make deps\"; on Debian 13 also install its package virtiofsd", errCannot, err)
		}
	}
	available, err := availableMiB("/proc/meminfo")
	if err != nil {
		return err
	}
	if want := memoryMiB + ownMiB; available < want {
		return fmt.Errorf("%w: %d MiB of memory are available, want %d", errCannot, available, want)
	}
	_, err = kernelPackages(l)
	return err
}

// ownMiB is what QEMU needs besides the machine's memory: TCG keeps up to 1 GiB
// of translated code (accel/tcg, tb-size).
const ownMiB = 1200

// availableMiB reads MemAvailable of a meminfo file (proc(5)).
func availableMiB(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read available memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib >> 10, nil
		}
	}
	return 0, fmt.Errorf("read available memory: %s has no MemAvailable", path)
}

// kernelPackages returns the files of Debian's kernel as "make guest-image" fetched
// them; those of the newest if there are several. Debian 14 has each kernel in three.
func kernelPackages(l harness.Layout) ([]string, error) {
	cache := filepath.Join(l.Build(), "cache")
	newest, at := "", int64(0)
	for _, pattern := range []string{"linux-image-*.deb", "linux-binary-*.deb"} {
		found, err := filepath.Glob(filepath.Join(cache, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			info, err := os.Stat(path)
			if err != nil {
				return nil, fmt.Errorf("find kernel package: %w", err)
			}
			if t := info.ModTime().UnixNano(); newest == "" || t > at {
				newest, at = path, t
			}
		}
	}
	if newest == "" {
		return nil, fmt.Errorf("find kernel package: none in %s: remove %s and run \"make guest-image\"", cache, filepath.Join(l.Build(), "guest"))
	}
	rest, parts := strings.CutPrefix(filepath.Base(newest), "linux-binary-")
	if !parts {
		return []string{newest}, nil
	}
	return []string{newest, filepath.Join(cache, "linux-base-"+rest), filepath.Join(cache, "linux-modules-"+rest)}, nil
}
