package config

import (
	"errors"
	"io/fs"
	"os"
)

// Server is what serves the share on this host: the path of a daemon, or "" for
// the shim itself. The default is the daemon of QEMU 7 (Debian 12); later QEMUs
// come without one (Debian 13), and then the shim serves. Any other path stands
// for itself, there or not.
func (v VirtioFS) Server() string {
	if v.Daemon != defaultVirtioFSDaemon {
		return v.Daemon
	}
	if _, err := os.Stat(v.Daemon); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return v.Daemon
}
