package guest

import (
	"strings"

	"golang.org/x/sys/unix"
)

// mountFlags maps the options of mount(8) to flags; one of a pair of opposites
// clears what the other sets.
var mountFlags = map[string]struct {
	flag  uintptr
	clear bool
}{
	"ro":          {unix.MS_RDONLY, false},
	"rw":          {unix.MS_RDONLY, true},
	"nosuid":      {unix.MS_NOSUID, false},
	"suid":        {unix.MS_NOSUID, true},
	"nodev":       {unix.MS_NODEV, false},
	"dev":         {unix.MS_NODEV, true},
	"noexec":      {unix.MS_NOEXEC, false},
	"exec":        {unix.MS_NOEXEC, true},
	"sync":        {unix.MS_SYNCHRONOUS, false},
	"async":       {unix.MS_SYNCHRONOUS, true},
	"dirsync":     {unix.MS_DIRSYNC, false},
	"noatime":     {unix.MS_NOATIME, false},
	"atime":       {unix.MS_NOATIME, true},
	"nodiratime":  {unix.MS_NODIRATIME, false},
	"relatime":    {unix.MS_RELATIME, false},
	"norelatime":  {unix.MS_RELATIME, true},
	"strictatime": {unix.MS_STRICTATIME, false},
	"lazytime":    {unix.MS_LAZYTIME, false},
	"defaults":    {0, false},
}

// parseMountOptions splits mount(8) options into mount(2) flags and the data
// string for the file system.
func parseMountOptions(options []string) (flags uintptr, data string) {
	var rest []string
	for _, word := range strings.Split(strings.Join(options, ","), ",") {
		if word == "" {
			continue
		}
		known, ok := mountFlags[word]
		switch {
		case !ok:
			rest = append(rest, word)
		case known.clear:
			flags &^= known.flag
		default:
			flags |= known.flag
		}
	}
	return flags, strings.Join(rest, ",")
}
