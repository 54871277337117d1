package deb

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
	"time"
)

// Visit is called for each regular file of a package, in the archive's order.
// name is clean, relative and without "..". content is valid until Visit returns;
// what Visit does not read is skipped.
type Visit func(name string, size int64, content io.Reader) error

// waitDelay bounds the wait for the children of a tool that has ended.
const waitDelay = 5 * time.Second

// Walk visits the regular files of the package at file. It needs dpkg-deb
// and blocks until the whole package is read, ctx ends, or visit fails.
func Walk(ctx context.Context, file string, visit Visit) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	cmd.WaitDelay = waitDelay
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run dpkg-deb (Debian package dpkg): %w", err)
	}
	walkErr := walkTar(out, visit)
	if walkErr != nil {
		// dpkg-deb and its child, which cancel does not reach, may be
		// waiting to write.
		cancel()
		_ = out.Close()
	}
	waitErr := cmd.Wait()
	if walkErr != nil || waitErr != nil {
		return fmt.Errorf("read package %s: %w: %s", file, errors.Join(walkErr, waitErr), strings.TrimSpace(stderr.String()))
	}
	return nil
}

func walkTar(r io.Reader, visit Visit) error {
	archive := tar.NewReader(r)
	for {
		hdr, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// dpkg-deb pads its output; a closed pipe would fail it.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return fmt.Errorf("read tar: %w", err)
		}
		if hdr.Typeflag != tar.TypeReg {
			continue
		}
		name := path.Clean("/" + hdr.Name)[1:]
		if err := visit(name, hdr.Size, archive); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
}
