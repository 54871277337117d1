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

// kernelPackage has the parts of a kernel's packages that a build needs.
type kernelPackage struct {
	// release is the kernel's uname -r.
	release string
	bzImage []byte
	modules []*modules.Module
	// builtin is modules.builtin.
	builtin []byte
}

// readPackages reads the kernel and all its modules into memory.
func readPackages(ctx context.Context, files []string) (*kernelPackage, error) {
	pkg := &kernelPackage{}
	for _, file := range files {
		err := deb.Walk(ctx, file, func(name string, size int64, content io.Reader) error {
			return pkg.visit(ctx, strings.TrimPrefix(name, "usr/"), size, content)
		})
		if err != nil {
			return nil, err
		}
	}
	if pkg.bzImage == nil || len(pkg.modules) == 0 || pkg.builtin == nil {
		return nil, fmt.Errorf("read package %s: no kernel with modules: give the image package, not its meta package; "+
			"if it has no files, its linux-base, linux-binary and linux-modules", strings.Join(files, ", "))
	}
	return pkg, nil
}

// releaseOf returns the release of the kernel that a package's file is, or "".
func releaseOf(name string) string {
	if release, ok := strings.CutPrefix(name, "boot/vmlinuz-"); ok {
		return release
	}
	if dir, ok := strings.CutSuffix(name, "/vmlinuz"); ok && path.Dir(dir) == "lib/modules" {
		return path.Base(dir)
	}
	return ""
}

func (p *kernelPackage) visit(ctx context.Context, name string, size int64, content io.Reader) error {
	release := releaseOf(name)
	builtin := strings.HasPrefix(name, "lib/modules/") && path.Base(name) == "modules.builtin"
	module := strings.HasPrefix(name, "lib/modules/") && strings.Contains(path.Base(name), ".ko")
	if release == "" && !builtin && !module {
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
		return errors.New("a second kernel")
	default:
		p.bzImage, p.release = data, release
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
