package pack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Archive packs the files below dir, an image layout, into a tar file at path, which
// appears complete or not at all. Several programs may write the same file
// concurrently, as parallel suites do.
func Archive(path, dir string) (err error) {
	archive, err := tarOfDir(dir)
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-")
	if err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part.Name())
		}
	}()
	_, err = part.Write(archive)
	if err := errors.Join(err, part.Chmod(0o644), part.Close()); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return os.Rename(part.Name(), path)
}

func tarOfDir(dir string) ([]byte, error) {
	var files []File
	tree := os.DirFS(dir)
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, path)
		files = append(files, File{Path: path, Mode: 0o644, Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return tarOf(files)
}
