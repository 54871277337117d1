package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	if now.Content, err = currentContent(agent, tools, opts); err != nil {
		return err
	}
	old := readStamp(opts.out)
	usable := !opts.force && old.intact(opts.out)
	if known := now.Content.with(old.Content.Deb); usable && old.Request == now.Request && old.Content == known {
		r.upToDate(opts.out)
		return nil
	}
	r.line("agent %s: %s, static", opts.agent, mib(len(agent)))
	files, err := fetch(ctx, opts, r)
	if err != nil {
		return err
	}
	now.Content.Deb = files.sum
	if usable && old.Content == now.Content {
		old.Request = now.Request
		r.upToDate(opts.out)
		return old.write(opts.out)
	}
	kernelELF, initrd, err := assemble(ctx, opts, agent, tools, files.paths, r)
	if err != nil {
		return err
	}
	return now.save(opts.out, map[string][]byte{kernelName: kernelELF, initrdName: initrd}, r)
}

// packageFiles are the kernel's .debs on this host.
type packageFiles struct {
	paths []string
	// sum is their SHA-256, with a space between several.
	sum string
}

// add adds a file.
func (p *packageFiles) add(path, sum string) {
	p.paths = append(p.paths, path)
	p.sum = strings.TrimPrefix(p.sum+" "+sum, " ")
}

// fetch finds the kernel's packages, and downloads them if none were named.
func fetch(ctx context.Context, opts options, r *report) (packageFiles, error) {
	if len(opts.debs) > 0 {
		return named(opts.debs, r)
	}
	return download(ctx, opts, r)
}

func named(debs []string, r *report) (files packageFiles, err error) {
	for _, path := range debs {
		sum, err := deb.HashFile(path)
		if err != nil {
			return files, fmt.Errorf("read package: %w", err)
		}
		files.add(path, sum)
	}
	r.line("package %s: SHA-256 %s", strings.Join(debs, ", "), files.sum)
	return files, nil
}

func download(ctx context.Context, opts options, r *report) (files packageFiles, err error) {
	if err := os.MkdirAll(opts.cache, 0o755); err != nil {
		return files, err
	}
	var apt deb.Apt
	packages, err := apt.Resolve(ctx, opts.kernelPackage)
	if err != nil {
		return files, err
	}
	var names []string
	size, how := 0, "from the cache"
	for _, pkg := range packages {
		path, cached, err := apt.Fetch(ctx, pkg, opts.cache)
		if err != nil {
			return files, err
		}
		if !cached {
			how = "downloaded"
		}
		files.add(path, pkg.SHA256)
		names, size = append(names, pkg.Name+" "+pkg.Version), size+int(pkg.Size)
	}
	r.line("package %s: %s %s, SHA-256 verified", strings.Join(names, ", "), mib(size), how)
	return files, nil
}

// assemble makes the contents of both outputs.
func assemble(ctx context.Context, opts options, agent []byte, tools tools, files []string, r *report) (kernelELF, initrd []byte, err error) {
	pkg, err := readPackages(ctx, files)
	if err != nil {
		return nil, nil, err
	}
	img, err := unpackKernel(ctx, pkg, r)
	if err != nil {
		return nil, nil, err
	}
	mods, err := choose(pkg, opts.modules)
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
