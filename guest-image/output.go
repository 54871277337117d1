package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeFile replaces a file atomically: a reader sees the old or the new one. It
// returns the identity of the new one.
func writeFile(path string, data []byte) (output, error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return output{}, err
	}
	_, err = tmp.Write(data)
	info, statErr := tmp.Stat()
	err = errors.Join(err, statErr, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return output{}, errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return outputOf(info), nil
}
