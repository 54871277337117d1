package deb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Fetch returns the path of p's .deb in dir, downloading it if it does not exist.
// Either way it has compared the file's SHA-256 with apt's. cached reports that
// nothing was downloaded. dir must exist.
func (a Apt) Fetch(ctx context.Context, p Package, dir string) (path string, cached bool, err error) {
	path = filepath.Join(dir, fileName(p))
	if sum, err := HashFile(path); err == nil && sum == p.SHA256 {
		return path, true, nil
	}
	if err := a.download(ctx, p, path); err != nil {
		return "", false, fmt.Errorf("download package %s=%s: %w", p.Name, p.Version, err)
	}
	return path, false, nil
}

// fileName is apt's name for a package file without the architecture; the colon
// of an epoch becomes %3a, as in apt.
func fileName(p Package) string {
	return filepath.Base(p.Name + "_" + strings.ReplaceAll(p.Version, ":", "%3a") + ".deb")
}

// download lets apt-get choose the name of its file, in a separate directory, and
// moves the file to path once its digest is verified.
func (a Apt) download(ctx context.Context, p Package, path string) (err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".download-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	// As root apt-get would drop to the user _apt, who cannot write to tmp,
	// and warn that it did not. The file is checked below in any case.
	if _, err := a.run(ctx, tmp, "apt-get", "download", "-q",
		"-o", "APT::Sandbox::User=root", p.Name+"="+p.Version); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("find what apt-get wrote: %d files: %w", len(debs), err)
	}
	if err := verify(debs[0], p); err != nil {
		return err
	}
	return os.Rename(debs[0], path)
}

func verify(path string, p Package) error {
	sum, err := HashFile(path)
	if err != nil {
		return err
	}
	if sum != p.SHA256 {
		return fmt.Errorf("verify file: its SHA-256 is %s, apt's lists say %s: run `apt-get update`", sum, p.SHA256)
	}
	return nil
}

// HashFile returns the SHA-256 of a file in lower-case hexadecimal.
func HashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, f, make([]byte, 1<<20)); err != nil {
		return "", fmt.Errorf("hash file %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
