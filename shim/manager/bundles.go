package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sandboxBundle finds the bundle of a container's sandbox: it is where the
// container's is, by the other id.
func sandboxBundle(p *Params, sandboxID string) (string, error) {
	bundles, below := splitBundle(p.Bundle, p.ID)
	dir, err := findBundle(bundles, sandboxID)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, below), nil
}

// splitBundle returns the directory with the engine's bundles, and what a
// bundle's path has below its id: nothing (containerd, iSulad), or "userdata"
// (CRI-O).
func splitBundle(path, id string) (bundles, below string) {
	for dir := path; ; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == id {
			return filepath.Dir(dir), strings.TrimPrefix(path[len(dir):], "/")
		}
		if dir == filepath.Dir(dir) { // the id is nowhere in the path
			return filepath.Dir(path), ""
		}
	}
}

// findBundle finds the sandbox's bundle among the engine's. iSulad's users
// may type the beginning of an id, which must then be one sandbox's alone.
func findBundle(bundles, sandboxID string) (string, error) {
	exact := filepath.Join(bundles, sandboxID)
	if _, err := os.Stat(exact); err == nil {
		return exact, nil
	}
	entries, err := os.ReadDir(bundles)
	if err != nil {
		return "", fmt.Errorf("find sandbox %s: %w", sandboxID, err)
	}
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), sandboxID) {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("sandbox %s: %d sandboxes of %s have an id with this prefix, want one", sandboxID, len(found), bundles)
	}
	return filepath.Join(bundles, found[0]), nil
}
