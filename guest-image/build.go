package main

import (
	"context"
	"fmt"
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

// build builds what the flags request, unless it is up to date.
func build(ctx context.Context, opts options, r *report) error {
	agent, err := readAgent(opts.agent)
	if err != nil {
		return err
	}
	tools, err := readTools(ctx, opts)
	if err != nil {
		return err
	}
	now := stamp{Request: currentRequest(opts)}
	if now.Content, err = currentContent(agent, tools, opts.compress); err != nil {
		return err
	}
	old := readStamp(opts.out)
	usable := !opts.force && old.intact(opts.out)
	if known := now.Content.with(old.Content.Deb); usable && old.Request == now.Request && old.Content == known {
		r.upToDate(opts.out)
		return nil
	}
	r.line("agent %s: %s, static", opts.agent, mib(len(agent)))
	pkg, err := fetch(ctx, opts, r)
	if err != nil {
		return err
	}
	now.Content.Deb = pkg.sum
	if usable && old.Content == now.Content {
		old.Request = now.Request
		r.upToDate(opts.out)
		return old.write(opts.out)
	}
	kernelELF, initrd, err := assemble(ctx, opts, agent, tools, pkg.path, r)
	if err != nil {
		return err
	}
	return now.save(opts.out, map[string][]byte{kernelName: kernelELF, initrdName: initrd}, r)
}

// packageFile is a .deb on this host.
type packageFile struct {
	path string
	// sum is its SHA-256.
	sum string
}

// fetch downloads the kernel package.
func fetch(ctx context.Context, opts options, r *report) (packageFile, error) {
	if opts.deb != "" {
		sum, err := deb.HashFile(opts.deb)
		if err != nil {
			return packageFile{}, fmt.Errorf("read package: %w", err)
		}
		r.line("package %s: SHA-256 %s", opts.deb, sum)
		return packageFile{opts.deb, sum}, nil
	}
	if err := os.MkdirAll(opts.cache, 0o755); err != nil {
		return packageFile{}, err
	}
	var apt deb.Apt
	pkg, err := apt.Resolve(ctx, opts.kernelPackage)
	if err != nil {
		return packageFile{}, err
	}
	file, cached, err := apt.Fetch(ctx, pkg, opts.cache)
	if err != nil {
		return packageFile{}, err
	}
	how := "downloaded"
	if cached {
		how = "from the cache"
	}
	r.line("package %s %s: %s %s, SHA-256 verified", pkg.Name, pkg.Version, mib(int(pkg.Size)), how)
	return packageFile{file, pkg.SHA256}, nil
}

// assemble makes the contents of both outputs.
func assemble(ctx context.Context, opts options, agent []byte, tools tools, file string, r *report) (kernelELF, initrd []byte, err error) {
	pkg, err := readPackage(ctx, file)
	if err != nil {
		return nil, nil, err
	}
	img, err := unpackKernel(ctx, pkg, r)
	if err != nil {
		return nil, nil, err
	}
	mods, err := choose(pkg)
	if err != nil {
		return nil, nil, err
	}
	r.line("modules: %s, of %d%s", mods, len(pkg.modules), mods.missing())
	plain, err := archive(agent, tools, mods)
	if err != nil {
		return nil, nil, err
	}
	if initrd, err = compress(plain, opts.compress); err != nil {
		return nil, nil, err
	}
	r.line("initrd: %s archive -> %s (%s)", mib(len(plain)), mib(len(initrd)), opts.compress)
	return img.ELF, initrd, nil
}

func unpackKernel(ctx context.Context, pkg *kernelPackage, r *report) (*kernel.Image, error) {
	img, err := kernel.Unpack(ctx, pkg.bzImage)
	if err != nil {
		return nil, fmt.Errorf("unpack kernel %s: %w", pkg.release, err)
	}
	if img.PVHEntry == 0 {
		return nil, fmt.Errorf("unpack kernel %s: it has no Xen PVH note (CONFIG_PVH): QEMU cannot start its ELF", pkg.release)
	}
	r.line("kernel %s: %s bzImage (%s) -> %s -> %s ELF (PVH entry %#x)", pkg.release,
		mib(len(pkg.bzImage)), img.Compression, mib(img.Unpacked), mib(len(img.ELF)), img.PVHEntry)
	return img, nil
}

// save writes the outputs, and then the stamp that describes them.
func (s stamp) save(dir string, files map[string][]byte, r *report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s.Outputs = map[string]output{}
	var rows []row
	for _, name := range []string{kernelName, initrdName} {
		path := filepath.Join(dir, name)
		out, err := writeFile(path, files[name])
		if err != nil {
			return err
		}
		s.Outputs[name] = out
		rows = append(rows, row{path, len(files[name])})
	}
	if err := s.write(dir); err != nil {
		return err
	}
	r.table(rows)
	return nil
}
