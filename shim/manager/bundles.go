package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sandboxBundle finds the bundle of a container's sandbox, with the sandbox's id in
// its path: beside the container's bundle, or where containerd 2.x keeps those of
// the sandbox API.
func sandboxBundle(p *Params, sandboxID string) (string, error) {
	bundles, below := splitBundle(p.Bundle, p.ID)
	dir, err := findBundle(bundles, sandboxID)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, below), nil
}

// splitBundle splits a bundle's path into the directory with the engine's bundles
// and what follows the id: nothing (containerd, iSulad), or "userdata" (CRI-O).
func splitBundle(path, id string) (bundles, below string) {
	for dir := path; ; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == id {
			return filepath.Dir(dir), strings.TrimPrefix(path[len(dir):], "/")
		}
		if dir == filepath.Dir(dir) { // the id is not part of the path
			return filepath.Dir(path), ""
		}
	}
}

// findBundle finds the sandbox's bundle among the engine's. iSulad's users may
// type a prefix of an id, which must then match only one sandbox.
func findBundle(bundles, sandboxID string) (string, error) {
	state, namespace := filepath.Dir(filepath.Dir(bundles)), filepath.Base(bundles)
	for _, exact := range []string{
		filepath.Join(bundles, sandboxID),
		filepath.Join(state, sandboxController, namespace, sandboxID),
	} {
		if _, err := os.Stat(exact); err == nil {
			return exact, nil
		}
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
	switch len(found) {
	case 0:
		return "", fmt.Errorf("find sandbox %s: no bundle below %s has this id: has the pod ended?", sandboxID, bundles)
	case 1:
		return filepath.Join(bundles, found[0]), nil
	}
	return "", fmt.Errorf("find sandbox %s: %d sandboxes below %s have an id with this prefix, want one", sandboxID, len(found), bundles)
}
