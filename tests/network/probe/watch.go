package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// watchEnd is the name whose event ends watch.
const watchEnd = "end"

// watchEvents are the events of inotify(7) that watch prints, in the order of a line.
var watchEvents = []struct {
	bit  uint32
	name string
}{
	{unix.IN_CREATE, "create"},
	{unix.IN_MODIFY, "modify"},
	{unix.IN_ATTRIB, "attrib"},
	{unix.IN_CLOSE_WRITE, "close_write"},
	{unix.IN_MOVED_FROM, "moved_from"},
	{unix.IN_MOVED_TO, "moved_to"},
	{unix.IN_DELETE, "delete"},
}

// watch prints "ready" and then each event in a directory, until one is about watchEnd.
func watch(args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("want a directory to watch")
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var mask uint32
	for _, e := range watchEvents {
		mask |= e.bit
	}
	if _, err := unix.InotifyAddWatch(fd, args[0], mask); err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return os.NewSyscallError("read", err)
		}
		if ended, err := printEvents(buf[:n], out); ended || err != nil {
			return err
		}
	}
}

// printEvents prints what the kernel returned (inotify(7), struct inotify_event: the mask is
// the second word, the length of the name the fourth). It reports whether watchEnd was among it.
func printEvents(events []byte, out io.Writer) (bool, error) {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:end], "\x00"))
		if name == watchEnd {
			return true, nil
		}
		for _, e := range watchEvents {
			if mask&e.bit == 0 {
				continue
			}
			if _, err := fmt.Fprintln(out, e.name, name); err != nil {
				return false, err
			}
		}
		events = events[end:]
	}
	return false, nil
}
