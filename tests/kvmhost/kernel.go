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
	// base is the directory that the packages are unpacked in.
	base string
	// release is its uname -r.
	release string
}

// unpackKernel unpacks a kernel's packages below dir, once, and indexes its modules.
func unpackKernel(ctx context.Context, debs []string, dir string) (*kernel, error) {
	base := filepath.Join(dir, strings.TrimSuffix(filepath.Base(debs[0]), ".deb"))
	done := filepath.Join(base, "complete")
	if _, err := os.Stat(done); err != nil {
		if err := os.RemoveAll(base); err != nil {
			return nil, fmt.Errorf("unpack kernel: %w", err)
		}
		if err := unpackInto(ctx, debs, base); err != nil {
			return nil, fmt.Errorf("unpack kernel: %w", err)
		}
	}
	k, err := kernelIn(base)
	if err != nil {
		return nil, fmt.Errorf("unpack kernel: %s: %w", strings.Join(debs, ", "), err)
	}
	if _, err := os.Stat(done); err == nil {
		return k, nil
	}
	if _, err := output(ctx, "depmod", "-b", base, k.release); err != nil {
		return nil, fmt.Errorf("index modules: %w", err)
	}
	return k, os.WriteFile(done, nil, 0o644)
}

// unpackInto unpacks packages into a new directory.
func unpackInto(ctx context.Context, debs []string, base string) error {
	for _, dir := range []string{filepath.Join(base, "boot"), filepath.Join(base, "usr", "lib")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// depmod and modprobe look in lib.
	if err := os.Symlink("usr/lib", filepath.Join(base, "lib")); err != nil {
		return err
	}
	for _, deb := range debs {
		if _, err := output(ctx, "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"`, "sh", deb, base); err != nil {
			return err
		}
	}
	return nil
}

// kernelIn finds the one kernel in a directory that its packages are unpacked in.
func kernelIn(base string) (*kernel, error) {
	var found []*kernel
	for _, pattern := range []string{"boot/vmlinuz-*", "lib/modules/*/vmlinuz"} {
		images, err := filepath.Glob(filepath.Join(base, pattern))
		if err != nil {
			return nil, err
		}
		for _, image := range images {
			release, inBoot := strings.CutPrefix(filepath.Base(image), "vmlinuz-")
			if !inBoot {
				release = filepath.Base(filepath.Dir(image))
			}
			found = append(found, &kernel{image: image, base: base, release: release})
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d kernels, want one", len(found))
	}
	return found[0], nil
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
