package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsHosts reports whether a path below /dev is one that a guest can have of the host:
// a disk, a regular file, a UNIX socket, or a directory in memory, such as one in
// /dev/shm. Others are directories and nodes of devices that the host alone has.
func IsHosts(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.Type() == fs.ModeSocket:
		return true
	case mode.IsDir():
		return path != "/dev/shm" && isMemory(path, info)
	}
	return isDisk(path, info)
}

// isDisk reports whether a path without symbolic links is a block device that the host has
// in /dev itself. A node elsewhere may be one that a guest has made in a volume, with the
// number of any disk.
func isDisk(path string, info fs.FileInfo) bool {
	isBlock := info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0
	return isBlock && strings.HasPrefix(path, "/dev/") && isInDev(info)
}

// isMemory reports whether a directory is in a tmpfs other than the one that /dev itself
// is: devtmpfs is of the same type.
func isMemory(path string, info fs.FileInfo) bool {
	var of unix.Statfs_t
	return unix.Statfs(path, &of) == nil && of.Type == unix.TMPFS_MAGIC && !isInDev(info)
}

// isInDev reports whether a file is in the file system that is mounted at /dev, in which
// only the host makes files. If that is not known, it is.
func isInDev(info fs.FileInfo) bool {
	dev, err := os.Stat("/dev")
	return err != nil || dev.Sys().(*syscall.Stat_t).Dev == info.Sys().(*syscall.Stat_t).Dev
}
