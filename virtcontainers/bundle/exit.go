package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// exitFile keeps a container's exit for "shim delete".
const exitFile = "shim.exit"

// Exit is how a container ended.
type Exit struct {
	Status uint32    `json:"status"`
	At     time.Time `json:"at"`
}

// SaveExit writes a container's exit into its bundle: if the shim is killed
// before the engine has asked, its delete still reports the real status.
func SaveExit(dir string, e Exit) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode exit: %w", err)
	}
	path := filepath.Join(dir, exitFile)
	// A reader in another process sees all of it or nothing.
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("save exit: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("save exit: %w", err)
	}
	return nil
}

// oomFile is the file by which CRI-O and Podman learn that the container ran out of
// memory.
const oomFile = "oom"

// SaveOOM notes in a bundle that its container ran out of memory. What has the note's name
// already is left as it is: the directory is the engine's, and a container may reach it.
func SaveOOM(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, oomFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("note that the container ran out of memory: %w", err)
	}
	return nil
}

// ForgetOOM removes the note of an earlier container with the same bundle. It is no error
// if there is none, which a read-only file system does not say, nor if a directory has the
// note's name.
func ForgetOOM(dir string) error {
	path := filepath.Join(dir, oomFile)
	switch err := unix.Unlink(path); {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.EROFS), errors.Is(err, unix.EISDIR):
		return nil
	default:
		return fmt.Errorf("forget that an earlier container ran out of memory: %w", &os.PathError{Op: "unlink", Path: path, Err: err})
	}
}

// LoadExit reads what SaveExit wrote. It fails with fs.ErrNotExist when there
// is none.
func LoadExit(dir string) (Exit, error) {
	data, err := os.ReadFile(filepath.Join(dir, exitFile))
	if err != nil {
		return Exit{}, fmt.Errorf("load exit: %w", err)
	}
	var e Exit
	if err := json.Unmarshal(data, &e); err != nil {
		return Exit{}, fmt.Errorf("load exit: %w", err)
	}
	return e, nil
}

// ForgetExit removes the exit of an earlier container with the same bundle. It
// is no error if there is none.
func ForgetExit(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, exitFile)); err != nil {
		return fmt.Errorf("forget exit: %w", err)
	}
	return nil
}
