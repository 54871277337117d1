package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// poststopFile says that the container's poststop hooks are due.
const poststopFile = "shim.poststop"

// OwePoststop notes in a bundle that the container's poststop hooks must run
// after its end, even if the shim dies.
func OwePoststop(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, poststopFile), nil, 0o600); err != nil {
		return fmt.Errorf("note poststop hooks: %w", err)
	}
	return nil
}

// ClaimPoststop reserves the poststop hooks for the caller, which then runs
// them. It returns false when they are not due or another process has claimed
// them.
func ClaimPoststop(dir string) (bool, error) {
	err := os.Remove(filepath.Join(dir, poststopFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim poststop hooks: %w", err)
	}
	return true, nil
}
