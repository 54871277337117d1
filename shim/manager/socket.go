package manager

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// defaultSocketDir holds the shims' sockets, unless the engine names
	// another directory.
	defaultSocketDir = "/run/kata-containers/shim"
	scheme           = "unix://"
	// addressFile and pidFile are in the bundle: engines read the first when
	// they restart.
	addressFile = "address"
	pidFile     = "shim.pid"
	// endingFile is there once the daemon has begun to end.
	endingFile = "shim.ending"
)

// socketAddress is the address of a sandbox's shim. The name is a hash: ids
// may be long, and a socket's path may not (unix(7): 107 bytes).
func socketAddress(p *Params) string {
	dir := p.SocketDir
	if dir == "" {
		dir = defaultSocketDir
	}
	sum := sha256.Sum256([]byte(p.GRPCAddress + "\x00" + p.Namespace + "\x00" + p.ID))
	return scheme + filepath.Join(dir, fmt.Sprintf("%x.sock", sum[:16]))
}

func socketPath(address string) string { return strings.TrimPrefix(address, scheme) }

// listen makes the shim's socket. One that a dead shim left is replaced; one
// that is served is an error.
func listen(address string) (*net.UnixListener, error) {
	path := socketPath(address)
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, fmt.Errorf("make socket directory: %w", err)
	}
	if checkServed(address) == nil {
		return nil, fmt.Errorf("socket %s: a shim of that id is running", path)
	}
	if err := removeSocket(address); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close(), removeSocket(address))
	}
	return l, nil
}

// checkServed fails when nobody listens on a shim's socket.
func checkServed(address string) error {
	conn, err := net.DialTimeout("unix", socketPath(address), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// removeSocket removes a shim's socket; one that is not there is no error.
func removeSocket(address string) error {
	if err := os.Remove(socketPath(address)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}

// readAddress reads the address that start wrote into a bundle.
func readAddress(bundleDir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(bundleDir, addressFile))
	if err != nil {
		return "", err
	}
	address := strings.TrimSpace(string(data))
	if !strings.HasPrefix(address, scheme+"/") {
		return "", fmt.Errorf("%s holds %q, want %s and a path", filepath.Join(bundleDir, addressFile), address, scheme)
	}
	return address, nil
}

// writeFile replaces a small file of the bundle at once.
func writeFile(dir, name, content string) error {
	tmp := filepath.Join(dir, "."+name)
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}
