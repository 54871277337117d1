package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Files that a shim keeps in its own container's bundle; it writes the first
// also into the bundles of the pod's other containers.
const (
	// AddressFile holds the address of the shim's socket. Engines read it when
	// they restart.
	AddressFile = "address"
	// PIDFile holds the daemon's pid.
	PIDFile = "shim.pid"
	// EndingFile exists once the daemon has begun to end.
	EndingFile = "shim.ending"
)

// OriginLink is a symbolic link to the engine's bundle, in a directory that kata-runtime
// gives the shim in its place.
const OriginLink = "origin"

// EngineDir returns the directory that the engine knows as the bundle: the target of
// OriginLink if there is one, and it still exists; otherwise the bundle's own.
func (b *Bundle) EngineDir() string {
	dir, err := os.Readlink(filepath.Join(b.Dir, OriginLink))
	if err != nil {
		return b.Dir
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return b.Dir
	}
	return dir
}

// AddressScheme is what an address begins with; an absolute path follows.
const AddressScheme = "unix://"

// Address reads the address that the shim's start wrote into a bundle. It
// fails with fs.ErrNotExist when there is none.
func Address(dir string) (string, error) {
	path := filepath.Join(dir, AddressFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	address := strings.TrimSpace(string(data))
	if !strings.HasPrefix(address, AddressScheme+"/") {
		return "", fmt.Errorf("%s holds %q, want %s and a path", path, address, AddressScheme)
	}
	return address, nil
}

// ShimIsEnding reports whether the daemon that owns this bundle has begun an
// orderly shutdown.
func ShimIsEnding(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, EndingFile))
	return err == nil
}
