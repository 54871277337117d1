package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/guest-image/internal/deb"
	"github.com/katabox/katabox/guest-image/internal/kernel"
)

// Names of the outputs.
const (
	kernelName = "vmlinux"
	initrdName = "initrd.img"
)

// build does what the flags ask for.
func build(ctx context.Context, opts options, r *report) error {
	agent, err := readAgent(opts.agent)
	if err != nil {
		return err
	}
	for _, dir := range []string{opts.out, opts.cache} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	r.line("agent %s: %s, static", opts.agent, mib(len(agent)))
	file, err := fetch(ctx, opts, r)
	if err != nil {
		return err
	}
	pkg, err := readPackage(ctx, file)
	if err != nil {
		return err
	}
	img, err := unpackKernel(ctx, pkg, r)
	if err != nil {
		return err
	}
	mods, err := choose(pkg)
	if err != nil {
		return err
	}
	r.line("modules: %d at boot (%s), %d on demand (%s), of %d", len(mods.boot), mib(size(mods.boot)),
		len(mods.demand), mib(size(mods.demand)), len(pkg.modules))
	initrd, err := archive(agent, mods)
	if err != nil {
		return err
	}
	r.line("initrd: %s", mib(len(initrd)))
	return errors.Join(
		writeFile(filepath.Join(opts.out, kernelName), img.ELF),
		writeFile(filepath.Join(opts.out, initrdName), initrd))
}

// readAgent reads the agent and checks that a guest without libraries can
// run it.
func readAgent(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("find the agent: %w: build it with `make agent`, or name one with -agent", err)
	}
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read agent %s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("read agent %s: built for %v, the guest is x86-64", path, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("read agent %s: it is linked dynamically, the guest has no libraries: link it with -extldflags -static", path)
		}
	}
	return data, nil
}

// fetch returns the path of the kernel package.
func fetch(ctx context.Context, opts options, r *report) (string, error) {
	if opts.deb != "" {
		r.line("package %s", opts.deb)
		return opts.deb, nil
	}
	var apt deb.Apt
	pkg, err := apt.Resolve(ctx, opts.kernelPackage)
	if err != nil {
		return "", err
	}
	file, cached, err := apt.Fetch(ctx, pkg, opts.cache)
	if err != nil {
		return "", err
	}
	how := "downloaded"
	if cached {
		how = "from the cache"
	}
	r.line("package %s %s: %s, %s, SHA-256 verified", pkg.Name, pkg.Version, mib(int(pkg.Size)), how)
	return file, nil
}

func unpackKernel(ctx context.Context, pkg *kernelPackage, r *report) (*kernel.Image, error) {
	img, err := kernel.Unpack(ctx, pkg.bzImage)
	if err != nil {
		return nil, fmt.Errorf("unpack kernel %s: %w", pkg.release, err)
	}
	if img.PVHEntry == 0 {
		return nil, fmt.Errorf("unpack kernel %s: it has no Xen PVH note (CONFIG_PVH): QEMU cannot start its ELF", pkg.release)
	}
	r.line("kernel %s: %s bzImage (%s) -> %s ELF (PVH entry %#x)", pkg.release,
		mib(len(pkg.bzImage)), img.Compression, mib(len(img.ELF)), img.PVHEntry)
	return img, nil
}

// writeFile replaces a file in one step: a reader sees the old or the new.
func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return nil
}
