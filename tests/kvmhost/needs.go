package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/tests/harness"
)

// missing says what makes this machine unfit, with errCannot, or what must be
// built before, without.
func missing(l harness.Layout) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: virtiofsd and containerd need root", errCannot)
	}
	for _, path := range []string{harness.DefaultQEMU, harness.DefaultVirtiofsd} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: %w: run \"make deps\"", errCannot, err)
		}
	}
	if _, err := kernelPackage(l); err != nil {
		return err
	}
	return nil
}

// kernelPackage is Debian's kernel as "make guest-image" fetched it; the
// newest if there are several.
func kernelPackage(l harness.Layout) (string, error) {
	found, err := filepath.Glob(filepath.Join(l.Build(), "cache", "linux-image-*.deb"))
	if err != nil {
		return "", err
	}
	newest, at := "", int64(0)
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("find kernel package: %w", err)
		}
		if t := info.ModTime().UnixNano(); newest == "" || t > at {
			newest, at = path, t
		}
	}
	if newest == "" {
		return "", fmt.Errorf("find kernel package: none in %s: run \"make guest-image\"", filepath.Join(l.Build(), "cache"))
	}
	return newest, nil
}
