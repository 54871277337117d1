package config

import "os"

// Server is what serves the share on this host: the path of a daemon, or "" for
// the shim itself. The default is the daemon of QEMU 7 (Debian 12). Later QEMUs
// come without one, and Debian 13's package of the Rust daemon, which takes other
// arguments, has a link in its place: then the shim serves. Any other path
// stands for itself, there or not.
func (v VirtioFS) Server() string {
	if v.Daemon == defaultVirtioFSDaemon && !isFile(v.Daemon) {
		return ""
	}
	return v.Daemon
}

// isFile reports whether path is a regular file itself.
func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}
