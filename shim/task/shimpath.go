package task

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// shimPathFile is where containerd keeps the path of the shim that it started
// for a bundle. When it is restarted it needs the path, even for a shim that runs
// (containerd, core/runtime/v2/shim_load.go).
const shimPathFile = "shim-binary-path"

// keepShimPath copies the pod's shim path to a service container's bundle, unless
// it is there. containerd 2.x does not write it for containers that join a running
// shim: if the path comes from its configuration (runtime_path) and not from PATH, a
// restarted containerd would not find the shim and would drop the container. Other
// engines keep no such file. With containerd's sandboxer "shim" the sandbox's bundle
// is elsewhere: that one starts shims by their runtime_type and ignores runtime_path.
func keepShimPath(bundle, sandboxID string) error {
	target := filepath.Join(bundle, shimPathFile)
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	path, err := os.ReadFile(filepath.Join(filepath.Dir(bundle), sandboxID, shimPathFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the shim's path: %w", err)
	}
	// A rename: containerd may be restarted, and read it, at any time.
	partial := target + ".partial"
	if err := os.WriteFile(partial, path, 0o600); err != nil {
		return fmt.Errorf("keep the shim's path: %w", err)
	}
	if err := os.Rename(partial, target); err != nil {
		return fmt.Errorf("keep the shim's path: %w", err)
	}
	return nil
}
