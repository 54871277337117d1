package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/internal/guestinit"
)

func main() { guestinit.Main(run) }

func run() error {
	if err := errors.Join(
		os.MkdirAll("/sys", 0o755), unix.Mount("sysfs", "/sys", "sysfs", 0, ""),
		os.MkdirAll("/dev", 0o755), unix.Mount("dev", "/dev", "devtmpfs", 0, ""),
	); err != nil {
		return fmt.Errorf("mount /sys and /dev: %w", err)
	}
	events, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("open uevents: %w", err)
	}
	// The events of thirty disks exceed the default buffer.
	if err := unix.SetsockoptInt(events, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20); err != nil {
		return fmt.Errorf("make room for uevents: %w", err)
	}
	if err := unix.Bind(events, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return fmt.Errorf("bind uevents: %w", err)
	}
	if err := guestinit.LoadModules(func(_, name string) bool { return slices.Contains(drivers, name) }); err != nil {
		return err
	}
	if err := errors.Join(serveEcho(), serveAsk()); err != nil {
		return err
	}
	sayCPUs("boot")
	fmt.Println("testguest: ready")
	buf := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(events, buf, 0)
		if err != nil {
			return fmt.Errorf("read uevents: %w", err)
		}
		head, _, _ := strings.Cut(string(buf[:n]), "\x00")
		report(head)
	}
}

// say prints a line for which the tests wait.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "testguest: "+format+"\n", args...)
}
