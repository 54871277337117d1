package image

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"

	"github.com/containerd/errdefs"
)

// Names in a tar that identify its kind: those of the OCI image specification,
// image-layout.md, and docker's.
const (
	layoutFile     = "oci-layout"
	indexFile      = "index.json"
	dockerManifest = "manifest.json"
)

// archiveKind determines the kind by the names in a tar. The old format of
// "docker save" takes precedence: newer versions write both.
func archiveKind(file string) (Kind, error) {
	layout := false
	err := eachEntry(file, func(name string, _ *tar.Header, _ io.Reader) error {
		switch name {
		case dockerManifest:
			return errFound
		case layoutFile:
			layout = true
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return DockerArchive, nil
	case err != nil:
		return "", err
	case layout:
		return LayoutArchive, nil
	}
	return "", fmt.Errorf("a tar with neither %s nor %s in it: %w", dockerManifest, layoutFile, errdefs.ErrInvalidArgument)
}

// errFound ends a walk early.
var errFound = errors.New("found")

// eachEntry calls f for each regular file of a tar, with its cleaned name,
// until f fails.
func eachEntry(file string, f func(name string, h *tar.Header, data io.Reader) error) error {
	in, err := openArchive(file)
	if err != nil {
		return err
	}
	defer in.Close()
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read tar: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := f(path.Clean(h.Name), h, r); err != nil {
			return err
		}
	}
}

// openArchive opens a tar, compressed by gzip or not.
func openArchive(file string) (io.ReadCloser, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	b := bufio.NewReader(f)
	magic, _ := b.Peek(2) // a short file is no tar either: the reader says so
	if string(magic) != "\x1f\x8b" {
		return readCloser{Reader: b, close: f.Close}, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open archive: %w", err), f.Close())
	}
	return readCloser{Reader: z, close: f.Close}, nil
}

// readCloser is a reader with a function that closes what it reads from.
type readCloser struct {
	io.Reader
	close func() error
}

// Close implements io.Closer.
func (r readCloser) Close() error { return r.close() }

// blobName matches a blob's name in a layout.
var blobName = regexp.MustCompile(`^blobs/[a-z0-9]+/[a-f0-9]{32,128}$`)

// extractLayout extracts a layout's files from a tar into dir. It skips names
// that a layout does not have, so none leads elsewhere.
func extractLayout(ctx context.Context, file, dir string) error {
	return eachEntry(file, func(name string, _ *tar.Header, data io.Reader) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if name != layoutFile && name != indexFile && !blobName.MatchString(name) {
			return nil
		}
		target := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return fmt.Errorf("extract layout: %w", err)
		}
		out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("extract layout: %w", err)
		}
		_, err = io.Copy(out, data)
		if err := errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("extract layout: %s: %w", name, err)
		}
		return nil
	})
}
