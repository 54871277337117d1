package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Layout names the parts of a built checkout.
type Layout struct {
	// Root is the checkout: the directory with go.mod.
	Root string
}

// FindLayout looks for the checkout from the working directory upwards.
func FindLayout() (Layout, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Layout{}, fmt.Errorf("find checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return Layout{Root: dir}, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return Layout{}, errors.New("find checkout: no go.mod in the working directory or above")
		}
		dir = parent
	}
}

// Bin holds the host's programs ("make build").
func (l Layout) Bin() string { return filepath.Join(l.Root, "bin") }

// Shim is the runtime under test.
func (l Layout) Shim() string { return filepath.Join(l.Bin(), "containerd-shim-kata-v2") }

// Build holds everything that can be built again.
func (l Layout) Build() string { return filepath.Join(l.Root, "build") }

// Kernel is the guest's kernel ("make guest-image").
func (l Layout) Kernel() string { return filepath.Join(l.Build(), "guest", "vmlinux") }

// Initrd is the guest's root ("make guest-image").
func (l Layout) Initrd() string { return filepath.Join(l.Build(), "guest", "initrd.img") }

// Logs keeps the daemons' logs after their directories are gone.
func (l Layout) Logs() string { return filepath.Join(l.Build(), "logs") }
