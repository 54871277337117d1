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

	"github.com/katabox/katabox/virtcontainers/bundle"
)

// defaultSocketDir holds the shims' sockets, unless the engine names another
// directory.
const defaultSocketDir = "/run/kata-containers/shim"

// socketAddress is the address of a sandbox's shim. The name is a hash: ids may
// be long, and a socket's path may not (unix(7): 107 bytes).
func socketAddress(p *Params) string {
	dir := p.SocketDir
	if dir == "" {
		dir = defaultSocketDir
	}
	sum := sha256.Sum256([]byte(p.GRPCAddress + "\x00" + p.Namespace + "\x00" + p.ID))
	return bundle.AddressScheme + filepath.Join(dir, fmt.Sprintf("%x.sock", sum[:16]))
}

func socketPath(address string) string { return strings.TrimPrefix(address, bundle.AddressScheme) }

// listen makes the shim's socket. It replaces the socket of a dead shim, and
// fails if a shim serves it.
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

// checkServed fails when no process listens on a shim's socket.
func checkServed(address string) error {
	conn, err := net.DialTimeout("unix", socketPath(address), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// removeSocket removes a shim's socket. It is not an error if there is none.
func removeSocket(address string) error {
	if err := os.Remove(socketPath(address)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}

// writeFile replaces a small file of the bundle atomically.
func writeFile(dir, name, content string) error {
	tmp := filepath.Join(dir, "."+name)
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}
