package direct

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Dir is a directory with the records of assigned volumes.
type Dir string

// Default is where Kata Containers' drivers look.
const Default Dir = "/run/kata-containers/shared/direct-volumes"

const infoName = "mountInfo.json"

// maxPath is the length of the longest path whose base64 form fits into a file
// name.
const maxPath = unix.NAME_MAX / 4 * 3

// Add assigns a volume: info is its mountInfo.json, which is checked. It
// atomically replaces an earlier record.
func (d Dir) Add(volumePath string, info []byte) error {
	dir, err := d.of(volumePath)
	if err == nil {
		_, err = Parse(info)
	}
	if err == nil {
		err = writeInfo(dir, info)
	}
	if err != nil {
		return fmt.Errorf("add direct volume %s: %w", volumePath, err)
	}
	return nil
}

// writeInfo writes the file and renames it into its place: a pod that starts
// meanwhile sees the old one or the new one.
func writeInfo(dir string, info []byte) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+infoName+"-*") // its mode is 0600
	if err != nil {
		return err
	}
	_, err = f.Write(info)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, infoName))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Remove removes a volume's record; it is no error if there is none. Pods that
// have the volume keep it.
func (d Dir) Remove(volumePath string) error {
	dir, err := d.of(volumePath)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("remove direct volume %s: %w", volumePath, err)
	}
	return nil
}

// Lookup returns a volume's record. It fails with errdefs.ErrNotFound if the
// volume was not assigned.
func (d Dir) Lookup(volumePath string) (*Info, error) {
	dir, err := d.of(volumePath)
	if err != nil {
		return nil, fmt.Errorf("look up direct volume %s: %w", volumePath, errdefs.ErrNotFound)
	}
	data, err := readInfo(filepath.Join(dir, infoName))
	var info *Info
	if err == nil {
		info, err = Parse(data)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("look up direct volume %s: %w", volumePath, err)
	}
	return info, nil
}

// readInfo reads one byte more than a document may have, so that Parse sees it.
func readInfo(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxInfo+1))
}

// of returns the directory of a volume's record.
func (d Dir) of(volumePath string) (string, error) {
	switch {
	case !filepath.IsAbs(volumePath) || strings.ContainsRune(volumePath, 0):
		return "", fmt.Errorf("volume path %q is not absolute: %w", volumePath, errdefs.ErrInvalidArgument)
	case len(filepath.Clean(volumePath)) > maxPath:
		return "", fmt.Errorf("volume path has %d bytes, want at most %d: %w", len(volumePath), maxPath, errdefs.ErrInvalidArgument)
	}
	return filepath.Join(string(d), base64.URLEncoding.EncodeToString([]byte(filepath.Clean(volumePath)))), nil
}
