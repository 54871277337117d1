package rootfs

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountFlags are the names of mount flags (mount(2)), for errors.
var mountFlags = []struct {
	flag uintptr
	name string
}{
	{unix.MS_RDONLY, "MS_RDONLY"},
	{unix.MS_NOSUID, "MS_NOSUID"},
	{unix.MS_NODEV, "MS_NODEV"},
	{unix.MS_NOEXEC, "MS_NOEXEC"},
	{unix.MS_SYNCHRONOUS, "MS_SYNCHRONOUS"},
	{unix.MS_REMOUNT, "MS_REMOUNT"},
	{unix.MS_DIRSYNC, "MS_DIRSYNC"},
	{unix.MS_NOATIME, "MS_NOATIME"},
	{unix.MS_NODIRATIME, "MS_NODIRATIME"},
	{unix.MS_BIND, "MS_BIND"},
	{unix.MS_REC, "MS_REC"},
	{unix.MS_UNBINDABLE, "MS_UNBINDABLE"},
	{unix.MS_PRIVATE, "MS_PRIVATE"},
	{unix.MS_SLAVE, "MS_SLAVE"},
	{unix.MS_SHARED, "MS_SHARED"},
	{unix.MS_RELATIME, "MS_RELATIME"},
	{unix.MS_STRICTATIME, "MS_STRICTATIME"},
	{unix.MS_LAZYTIME, "MS_LAZYTIME"},
}

// flagNames returns mount flags by name, those without one as a number.
func flagNames(flags uintptr) string {
	var list []string
	for _, n := range mountFlags {
		if flags&n.flag != 0 {
			list = append(list, n.name)
			flags &^= n.flag
		}
	}
	if flags != 0 {
		list = append(list, "0x"+strconv.FormatUint(uint64(flags), 16))
	}
	return strings.Join(list, "|")
}
