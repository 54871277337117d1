package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/katabox/katabox/guest-image/internal/deb"
	"github.com/katabox/katabox/guest-image/internal/decompress"
	"github.com/katabox/katabox/guest-image/internal/modules"
)

// maxFile bounds a file of the package, in bytes.
const maxFile = 256 << 20

// kernelPackage has the parts of a kernel package that a build needs.
type kernelPackage struct {
	// release is the kernel's uname -r.
	release string
	// bzImage is the kernel in the package.
	bzImage []byte
	modules []*modules.Module
	// builtin is the package's modules.builtin.
	builtin []byte
}

// readPackage reads the kernel and all its modules into memory.
func readPackage(ctx context.Context, file string) (*kernelPackage, error) {
	pkg := &kernelPackage{}
	err := deb.Walk(ctx, file, func(name string, size int64, content io.Reader) error {
		return pkg.visit(ctx, strings.TrimPrefix(name, "usr/"), size, content)
	})
	if err != nil {
		return nil, err
	}
	if pkg.bzImage == nil || len(pkg.modules) == 0 || pkg.builtin == nil {
		return nil, fmt.Errorf("read package %s: it holds no kernel with modules; give the image package, not its meta package", file)
	}
	return pkg, nil
}

func (p *kernelPackage) visit(ctx context.Context, name string, size int64, content io.Reader) error {
	kernel := strings.HasPrefix(name, "boot/vmlinuz-")
	builtin := strings.HasPrefix(name, "lib/modules/") && path.Base(name) == "modules.builtin"
	module := strings.HasPrefix(name, "lib/modules/") && strings.Contains(path.Base(name), ".ko")
	if !kernel && !builtin && !module {
		return nil
	}
	if size > maxFile {
		return fmt.Errorf("%d bytes are too many", size)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(content, data); err != nil {
		return err
	}
	switch {
	case module:
		return p.addModule(ctx, name, data)
	case builtin:
		p.builtin = data
	case p.bzImage != nil:
		return errors.New("a second kernel in one package")
	default:
		p.bzImage, p.release = data, strings.TrimPrefix(name, "boot/vmlinuz-")
	}
	return nil
}

func (p *kernelPackage) addModule(ctx context.Context, name string, data []byte) error {
	ko, err := decompress.Bytes(ctx, data, maxFile)
	if err != nil {
		return err
	}
	info, err := modules.ReadInfo(ko)
	if err != nil {
		return err
	}
	stem, _, _ := strings.Cut(path.Base(name), ".ko")
	p.modules = append(p.modules, &modules.Module{
		Info: info,
		Path: path.Join(path.Dir(name), stem+".ko"),
		Data: modules.Unsigned(ko),
	})
	return nil
}
