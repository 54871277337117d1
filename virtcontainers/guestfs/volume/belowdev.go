package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsHosts reports whether a path below /dev is one that a guest can have of the host:
// a disk, a regular file, a UNIX socket, or a directory in memory, such as one in
// /dev/shm. Others are directories and nodes of devices that the host alone has.
func IsHosts(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.Type() == fs.ModeSocket, isBlock(mode):
		return true
	case mode.IsDir():
		return filepath.Clean(path) != "/dev/shm" && isMemory(path, info)
	}
	return false
}

// isMemory reports whether a directory is in a tmpfs other than the one that /dev itself
// is: devtmpfs is of the same type.
func isMemory(path string, info fs.FileInfo) bool {
	var of unix.Statfs_t
	if unix.Statfs(path, &of) != nil || of.Type != unix.TMPFS_MAGIC {
		return false
	}
	dev, err := os.Stat("/dev")
	return err == nil && dev.Sys().(*syscall.Stat_t).Dev != info.Sys().(*syscall.Stat_t).Dev
}

func isBlock(mode fs.FileMode) bool { return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0 }
