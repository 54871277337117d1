package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// firstModules are what the machine's init needs before it has a root.
var firstModules = []string{"virtio_pci", "virtio_console", "virtiofs", "overlay"}

// wantedModules are loaded by modprobe once the root is mounted. The kernel
// requests the others (veth, bridge, nf_tables, schedulers) on demand.
var wantedModules = []string{"kvm_amd", "vhost_vsock", "vhost_net", "tun", "loop", "virtio_rng"}

// wantedDevices must exist for the machine to be the host that the suites need.
var wantedDevices = []string{"/dev/kvm", "/dev/vhost-vsock", "/dev/vhost-net", "/dev/net/tun", "/dev/loop-control"}

// kernel is an unpacked kernel package.
type kernel struct {
	// image is the bzImage.
	image string
	// base is the directory that the package is unpacked in.
	base string
	// release is its uname -r.
	release string
}

// unpackKernel unpacks a package below dir, once, and indexes its modules.
func unpackKernel(ctx context.Context, deb, dir string) (*kernel, error) {
	base := filepath.Join(dir, strings.TrimSuffix(filepath.Base(deb), ".deb"))
	done := filepath.Join(base, "complete")
	if _, err := os.Stat(done); err != nil {
		if err := os.RemoveAll(base); err != nil {
			return nil, fmt.Errorf("unpack kernel: %w", err)
		}
		if err := os.MkdirAll(base, 0o755); err != nil {
			return nil, fmt.Errorf("unpack kernel: %w", err)
		}
		if _, err := output(ctx, "dpkg-deb", "-x", deb, base); err != nil {
			return nil, fmt.Errorf("unpack kernel: %w", err)
		}
	}
	images, err := filepath.Glob(filepath.Join(base, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, fmt.Errorf("unpack kernel: %s has %d kernels, want one: %w", deb, len(images), err)
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	k := &kernel{image: images[0], base: base, release: release}
	if _, err := os.Stat(done); err == nil {
		return k, nil
	}
	if _, err := output(ctx, "depmod", "-b", base, release); err != nil {
		return nil, fmt.Errorf("index modules: %w", err)
	}
	return k, os.WriteFile(done, nil, 0o644)
}

// moduleTree returns the directory with all its modules: /lib/modules.
func (k *kernel) moduleTree() string { return filepath.Join(k.base, "lib", "modules") }

// loadOrder returns the files of the named modules and of their dependencies,
// each after its dependencies.
func (k *kernel) loadOrder(ctx context.Context, names []string) ([]string, error) {
	args := append([]string{"-d", k.base, "-S", k.release, "--show-depends", "-a"}, names...)
	text, err := output(ctx, "modprobe", args...)
	if err != nil {
		return nil, fmt.Errorf("order modules: %w", err)
	}
	var order []string
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		// insmod PATH [PARAMETERS]; "builtin NAME" is in the kernel.
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "insmod" && !seen[fields[1]] {
			seen[fields[1]] = true
			order = append(order, fields[1])
		}
	}
	return order, nil
}

// output runs a program of the build machine and returns what it prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if path, err := exec.LookPath(filepath.Join("/usr/sbin", name)); err == nil {
		cmd.Path, cmd.Err = path, nil
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
